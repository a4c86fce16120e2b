#include "agent/core/signal_name.h"

#include <csignal>

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("signal_name: numbers have Python's names, unknown ones have none", "[unit][agent]") {
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(SIGKILL) == "SIGKILL");
  CHECK(signal_name(SIGABRT) == "SIGABRT");  // Not SIGIOT.
  CHECK(signal_name(SIGCHLD) == "SIGCHLD");  // Not SIGCLD.
  CHECK(signal_name(SIGIO) == "SIGIO");      // Not SIGPOLL.
  CHECK(signal_name(SIGRTMIN) == "SIGRTMIN");
  CHECK(signal_name(SIGRTMAX) == "SIGRTMAX");
  CHECK(signal_name(SIGRTMIN + 1).empty());
  CHECK(signal_name(0).empty());
  CHECK(signal_name(-9).empty());
  CHECK(signal_name(1000).empty());
}

TEST_CASE("signal_number: any of Python's names gives the number", "[unit][agent]") {
  CHECK(signal_number("SIGTERM") == SIGTERM);
  CHECK(signal_number("SIGIOT") == SIGABRT);
  CHECK(signal_number("SIGPOLL") == SIGIO);
  CHECK(signal_number("SIGRTMIN") == SIGRTMIN);
  CHECK(signal_number("SIGRTMAX") == SIGRTMAX);
  CHECK_FALSE(signal_number("TERM"));
  CHECK_FALSE(signal_number(""));
}

}  // namespace
}  // namespace muster

#include "agent/core/stop_lines.h"

#include <csignal>

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("stop_lines: each process is named, with the signal", "[unit][agent]") {
  StopLines lines;
  CHECK(lines.line_for_signal(11, SIGTERM, 2) == "Sending process 11 closing signal SIGTERM");
  CHECK(lines.line_for_signal(12, SIGTERM, 2) == "Sending process 12 closing signal SIGTERM");
}

TEST_CASE("stop_lines: the line of a kill names the signal that did not help", "[unit][agent]") {
  StopLines lines;
  lines.line_for_signal(11, SIGINT, 1);
  lines.begin_stop();
  CHECK(lines.line_for_signal(11, SIGKILL, 1) ==
        "Unable to shutdown process 11 via 2, forcefully exiting via 9");
  lines.begin_attempt();
  CHECK(lines.line_for_signal(21, SIGKILL, 1) == "Sending process 21 closing signal SIGKILL");
}

TEST_CASE("stop_lines: beyond eight processes the others share a line", "[unit][agent]") {
  StopLines lines;
  for (const int signal : {SIGTERM, SIGTERM, SIGKILL}) {
    lines.begin_stop();
    for (int pid = 0; pid < StopLines::kMaxLines; ++pid)
      CHECK(lines.line_for_signal(pid, signal, 64).has_value());
    CHECK(lines.line_for_signal(8, signal, 64) ==
          (signal == SIGTERM
               ? "Sending 56 more processes closing signal SIGTERM"
               : "Unable to shutdown 56 more processes via 15, forcefully exiting via 9"));
    for (int pid = 9; pid < 64; ++pid)
      CHECK_FALSE(lines.line_for_signal(pid, signal, 64).has_value());
  }
}

}  // namespace
}  // namespace muster

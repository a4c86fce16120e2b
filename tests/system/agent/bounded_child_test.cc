#include "agent/posix/bounded_child.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("bounded child: the whole answer is returned", "[unit][agent]") {
  CHECK(answer_in_time([] { return std::string("yes"); }, 60s) == "yes");
  CHECK(answer_in_time([] { return std::string(); }, 60s) == "");
  std::string large(1 << 20, 'x');  // More than a pipe takes.
  CHECK(answer_in_time([&large] { return large; }, 60s) == large);
}

TEST_CASE("bounded child: the result is empty if there is no answer in time", "[unit][agent]") {
  CHECK_FALSE(answer_in_time([]() -> std::string { throw std::runtime_error("no"); }, 60s));
  CHECK_FALSE(answer_in_time([]() -> std::string { ::_exit(0); }, 60s));
  const auto never = []() -> std::string {
    for (;;)
      ::pause();
  };
  CHECK_FALSE(answer_in_time(never, 50ms));
}

}  // namespace
}  // namespace muster

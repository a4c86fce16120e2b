#include "agent/core/leftovers.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {
using namespace std::chrono_literals;
using Stage = LeftoverStage;

struct LeftoverWaitTest {
  Instant now{};
  LeftoverWait wait{{.until_sigterm = 7s, .until_sigkill = 3s}, now};

  /// The stages that begin in this time, which passes as for a shim that runs.
  std::vector<Stage> pass(Duration time) {
    std::vector<Stage> begun;
    for (const Instant end = now + time; now < end;) {
      now = std::min(end, now + std::max<Duration>(wait.until_next_check(), 1ms));
      while (const auto stage = wait.advance(now))
        begun.push_back(*stage);
    }
    return begun;
  }
};

TEST_CASE_METHOD(LeftoverWaitTest, "leftovers: they are named, get SIGTERM, and then SIGKILL",
                 "[unit][agent]") {
  CHECK(pass(200ms).empty());
  CHECK(pass(100ms) == std::vector{Stage::Wait});
  CHECK(pass(6600ms).empty());
  CHECK(pass(200ms) == std::vector{Stage::Terminate});
  CHECK(pass(2800ms).empty());
  CHECK(pass(200ms) == std::vector{Stage::Kill});
  CHECK(pass(100s).empty());
}

TEST_CASE_METHOD(LeftoverWaitTest,
                 "leftovers: daemons get SIGTERM when the processes that use them have ended",
                 "[unit][agent]") {
  wait = LeftoverWait({.until_sigterm = 2s, .until_sigkill = 4s}, now);
  CHECK(pass(2s) == std::vector{Stage::Wait, Stage::Terminate});
  SECTION("which they just have") {
    wait.terminate(true, true);
    CHECK(pass(2400ms).empty());
  }
  SECTION("which they had from the start") {
    wait.terminate(false, true);
    CHECK(pass(400ms).empty());
  }
  CHECK(pass(100ms) == std::vector{Stage::TerminateDaemons});
  CHECK(pass(3900ms).empty());
  CHECK(pass(100ms) == std::vector{Stage::Kill});
}

TEST_CASE_METHOD(LeftoverWaitTest, "leftovers: a request can only shorten their time",
                 "[unit][agent]") {
  CHECK(pass(1s) == std::vector{Stage::Wait});
  wait.shorten({.until_sigterm = 90s, .until_sigkill = 1s});
  CHECK(pass(5s).empty());
  wait.shorten({.until_sigterm = 2s, .until_sigkill = 90s});
  CHECK(pass(100ms) == std::vector{Stage::Terminate});
  CHECK(pass(1s) == std::vector{Stage::Kill});
}

TEST_CASE_METHOD(LeftoverWaitTest, "leftovers: without time the signals follow at once",
                 "[unit][agent]") {
  wait = LeftoverWait({}, now);
  CHECK(pass(1ms) == std::vector{Stage::Terminate, Stage::Kill});
}

TEST_CASE_METHOD(LeftoverWaitTest, "leftovers: a pause of the machine does not use up their time",
                 "[unit][agent]") {
  CHECK(pass(1s) == std::vector{Stage::Wait});
  now += 1h;
  CHECK_FALSE(wait.advance(now));
  CHECK(pass(3s).empty());
}

TEST_CASE("leftovers: after the agent's death --shutdown-timeout bounds each of their times",
          "[unit][agent]") {
  using std::chrono::milliseconds;
  const LeftoverTimes none = clean_up_times(std::chrono::seconds(30), Duration{});
  CHECK(none.until_sigterm == Duration{});
  CHECK(none.until_sigkill == Duration{});
  const LeftoverTimes some = clean_up_times(milliseconds(300), milliseconds(700));
  CHECK(some.until_sigterm == milliseconds(300));
  CHECK(some.until_sigkill == milliseconds(700));
}

TEST_CASE("leftovers: a line names them and says what happens", "[unit][agent]") {
  const std::vector<Leftover> two{{41, "sleep 60"}, {43, "python3 up.py"}};
  const std::string waits = leftover_text(Stage::Wait, two, 5, 45s);
  CHECK(waits ==
        "the workers have ended and left 5 processes that run on: 41 (sleep 60), 43 (python3 "
        "up.py) and 3 more; muster waits 45 s for the end (--leftover-timeout), then it sends "
        "SIGTERM");
  CHECK(leftover_text(Stage::Wait, {{41, "sleep 60"}}, 1, 2s) ==
        "the workers have ended and left a process that runs on: 41 (sleep 60); muster waits 2 s "
        "for the end, then it sends SIGTERM");
  CHECK(leftover_text(Stage::Terminate, two, 2, 2s) ==
        "killing what the workers have left: SIGTERM to 41 (sleep 60), 43 (python3 up.py)");
  CHECK(leftover_text(Stage::Kill, two, 2, 2s) ==
        "killing what the workers have left: SIGKILL to 41 (sleep 60), 43 (python3 up.py)");
}

}  // namespace
}  // namespace muster

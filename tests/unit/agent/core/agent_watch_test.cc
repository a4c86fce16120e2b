#include "agent/core/agent_watch.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

struct AgentWatchTest {
  /// Checks at intervals for `length`; true if the agent is lost at one of the checks.
  bool look(Duration length, AgentWatch::Observation facts) {
    const Instant end = now + length;
    for (;;) {
      facts.now = now;
      if (watch.is_lost(facts)) return true;
      if (now >= end) return false;
      now += watch.interval(facts.signals);
    }
  }
  AgentWatch watch;
  Instant now{1h};
};

TEST_CASE_METHOD(AgentWatchTest, "agent watch: an agent that answers is never lost",
                 "[unit][agent]") {
  CHECK_FALSE(look(24h, {.answered = true}));
  CHECK_FALSE(look(1h, {.answered = true, .signals = 2}));
}

TEST_CASE_METHOD(AgentWatchTest, "agent watch: an agent that is silent for too long is lost",
                 "[unit][agent]") {
  CHECK_FALSE(look(AgentWatch::kSilenceLimit - 5s, {.answered = false}));
  CHECK(look(10s, {.answered = false}));
}

TEST_CASE_METHOD(AgentWatchTest, "agent watch: one answer restarts the time limit",
                 "[unit][agent]") {
  CHECK_FALSE(look(AgentWatch::kSilenceLimit - 10s, {.answered = false}));
  CHECK_FALSE(look(0s, {.answered = true}));
  CHECK_FALSE(look(AgentWatch::kSilenceLimit - 10s, {.answered = false}));
}

TEST_CASE_METHOD(
    AgentWatchTest,
    "agent watch: an agent that is stopped on purpose is not lost unless a signal comes",
    "[unit][agent]") {
  CHECK_FALSE(look(24h, {.answered = false, .is_stopped = true}));
  CHECK(look(AgentWatch::kSilenceAfterSignalLimit + 1s,
             {.answered = false, .is_stopped = true, .signals = 1}));
}

TEST_CASE_METHOD(AgentWatchTest,
                 "agent watch: time in which the shim did not check does not count as silence",
                 "[unit][agent]") {
  CHECK_FALSE(look(10s, {.answered = false}));
  now += 8h;  // The machine slept.
  CHECK_FALSE(look(10s, {.answered = false}));
  CHECK_FALSE(look(1s, {.answered = false, .signals = 1}));
  now += 8h;
  CHECK_FALSE(look(1s, {.answered = false, .signals = 1}));
}

TEST_CASE_METHOD(AgentWatchTest, "agent watch: a third signal ends an agent that only answers",
                 "[unit][agent]") {
  CHECK_FALSE(look(1h, {.answered = true, .signals = 3, .is_killing = true}));
  CHECK(look(AgentWatch::kThirdSignalLimit + 1s, {.answered = true, .signals = 3}));
}

}  // namespace
}  // namespace muster

// The allowed changes of a round's phase: the table of docs/rendezvous_rules.md.

#include "rendezvous/rounds/run_phase.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Phase = RunPhase;

TEST_CASE("run phase: a round is prepared before its nodes work", "[unit][rendezvous]") {
  CHECK(may_follow(Phase::Gathering, Phase::Preparing));
  CHECK(may_follow(Phase::Preparing, Phase::Running));
  CHECK_FALSE(may_follow(Phase::Gathering, Phase::Running));
}

TEST_CASE("run phase: a round that goes on after the host was away is not prepared again",
          "[unit][rendezvous]") {
  CHECK(may_follow(Phase::Recovering, Phase::Running));
  CHECK_FALSE(may_follow(Phase::Recovering, Phase::Preparing));
  CHECK_FALSE(may_follow(Phase::Running, Phase::Recovering));
}

TEST_CASE("run phase: from every complete round there is a way to the next one",
          "[unit][rendezvous]") {
  for (const Phase phase : {Phase::Preparing, Phase::Running, Phase::Draining}) {
    CHECK(is_complete(phase));
    CHECK(may_follow(phase, Phase::Gathering));
    CHECK_FALSE(may_follow(phase, phase));
  }
  CHECK_FALSE(is_complete(Phase::Recovering));
  CHECK_FALSE(is_complete(Phase::Gathering));
}

TEST_CASE("run phase: only a run ends, so no step of a round leads to the end or away from it",
          "[unit][rendezvous]") {
  for (std::size_t i = 0; i < kRunPhases; ++i) {
    CHECK_FALSE(may_follow(static_cast<Phase>(i), Phase::Ended));
    CHECK_FALSE(may_follow(Phase::Ended, static_cast<Phase>(i)));
  }
}

}  // namespace
}  // namespace muster

// The node's side of the native door: how long a node waits for its host.

#include <algorithm>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/node/native_participant_fixture.h"

namespace muster::testing {
namespace {

/// Lets time pass as the session does, until the node gives up, and returns when and why.
std::pair<Duration, std::string> gives_up(ParticipantTest& test, bool host_welcomes) {
  const Instant begun = test.now;
  while (const auto next = test.participant->next_deadline()) {
    test.now = std::max(test.now, *next);
    if (test.now - begun > 1h) break;
    auto actions = test.participant->step(Participant::TimeHasPassed{}, test.now);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (const auto* failed = std::get_if<Participant::FailRendezvous>(&actions[i]))
        return {test.now - begun, failed->why};
      if (!std::holds_alternative<Participant::Connect>(actions[i])) continue;
      const auto more = host_welcomes
                            ? test.connect()
                            : test.feed(Participant::ConnectFailed{
                                  Participant::ConnectFailed::Why::NoAnswer, "no answer"});
      actions.insert(actions.end(), more.begin(), more.end());
    }
  }
  return {Duration::max(), "it never gave up"};
}

TEST_CASE("participant: join_timeout alone bounds a host that welcomes and answers nothing",
          "[unit][rendezvous]") {
  const Duration limit = GENERATE(as<Duration>(), 1s, 4s, 9s, 30s);
  ParticipantTest test({}, limit);
  test.connect();
  REQUIRE(ParticipantTest::sent<NodeJoined>(test.feed(Participant::JoinAsked{})).size() == 1);
  const bool welcomes_again = GENERATE(true, false);
  const auto [after, why] = gives_up(test, welcomes_again);
  INFO(why);
  CHECK(after >= limit);
  CHECK(after <= limit + 3s);
  CHECK(why.find("--rdzv-conf join_timeout=SECONDS") != std::string::npos);
}

TEST_CASE("participant: a host that answers applies join_timeout itself", "[unit][rendezvous]") {
  ParticipantTest test({}, 2s);
  test.connect();
  test.feed(Participant::JoinAsked{});
  for (int i = 0; i < 20; ++i) {
    test.now += 500ms;
    CHECK_FALSE(ParticipantTest::has<Participant::FailRendezvous>(test.hear(NativeAlive{})));
  }
  CHECK(ParticipantTest::has<Participant::FailRendezvous>(
      test.hear(JoinRefused{{}, JoinRefused::Why::TimedOut, "no round within 2 s"})));
}

TEST_CASE("participant: an agent that hosted and is lost is waited for for join_timeout at most",
          "[unit][rendezvous]") {
  ParticipantTest test({}, 7s);
  test.feed(Participant::Connected{{.lease = 5s, .resumes = true, .outlives_nodes = false}});
  test.feed(Participant::JoinAsked{});
  test.feed(Participant::ConnectionBroke{"reset"});
  const auto [after, why] = gives_up(test, false);
  CHECK(after >= 7s);
  CHECK(after <= 8s);
  CHECK(why.find("--rdzv-conf join_timeout=SECONDS") != std::string::npos);
}

}  // namespace
}  // namespace muster::testing

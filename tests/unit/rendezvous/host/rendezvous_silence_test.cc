// Closed connections that say nothing about the nodes, and leases that differ.

#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/host/rendezvous_resume_fixture.h"
#include "tests/unit/rendezvous/node/native_participant_fixture.h"

namespace muster::testing {
namespace {

bool anyone_is_lost(const RendezvousActions& actions) {
  for (const auto& action : actions)
    if (std::holds_alternative<NodeGone>(action)) return true;
  return false;
}

TEST_CASE_METHOD(ResumeTest, "rendezvous: if all nodes' connections close at once, they are silent",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, joiner(9, "spare"));
  for (const std::uint32_t id : {1, 2, 3})
    after(20ms, ConnectionLost{{id}});
  CHECK_FALSE(anyone_is_lost(pass(3s, {9})));
  SECTION("and go on when they are back") {
    const char* const names[] = {"a", "b", "c"};
    for (std::uint32_t id = 1; id <= 3; ++id) {
      const auto actions = after({}, resume(id + 10, names[id - 1], static_cast<int>(id) - 1));
      CHECK(sent<Resumed>(actions).size() == 1);
    }
    CHECK_FALSE(anyone_is_lost(pass(20s, {9, 11, 12, 13})));
  }
  SECTION("and nobody begins beside them when they stay away") {
    CHECK(anyone_is_lost(pass(4s, {9})));
    CHECK(sent<PrepareStore>(pass(60s, {9})).empty());
  }
}

/// a, b and c have fallen silent, and the host has lost them. A spare is there, on connection 9.
struct SilentRound : ResumeTest {
  SilentRound() {
    three_in_a_round();
    after({}, joiner(9, "spare"));
    for (const std::uint32_t id : {1, 2, 3})
      after(20ms, ConnectionLost{{id}});
    REQUIRE(anyone_is_lost(pass(7s, {9})));
    REQUIRE(rendezvous.phase() == Rendezvous::Phase::Gathering);
    REQUIRE(rendezvous.members() == 1);
  }
  RendezvousActions back(std::uint32_t id) {
    const char* const names[] = {"a", "b", "c"};
    return after({}, resume(id + 10, names[id - 1], static_cast<int>(id) - 1));
  }
};

TEST_CASE_METHOD(SilentRound, "rendezvous: a lost round goes on when all its nodes are back",
                 "[unit][rendezvous]") {
  CHECK(sent<Resumed>(back(2)).empty());
  pass(4s, {9, 12});
  CHECK(sent<Resumed>(back(1)).empty());
  pass(4s, {9, 11, 12});
  const auto whole = back(3);
  CHECK(sent<Resumed>(whole).size() == 3);
  REQUIRE(recovered(whole) != nullptr);
  CHECK(recovered(whole)->whole);
  const auto later = pass(60s, {9, 11, 12, 13});
  CHECK(sent<PrepareStore>(later).empty());
  CHECK_FALSE(anyone_is_lost(later));
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  CHECK(sent<RestartRound>(after({}, WorkersFailed{{12}, 0, "rank 1 exited with 1"})).size() == 3);
}

TEST_CASE_METHOD(SilentRound, "rendezvous: a lost round does not go on without one of its nodes",
                 "[unit][rendezvous]") {
  back(1);
  back(3);
  SECTION("that has stopped its workers") {
    NodeJoined stopped = joiner(12, "b");
    stopped.generation = generation;
    stopped.last_round = 0;
    CHECK(sent<Rejoin>(after({}, stopped)).size() == 2);
  }
  SECTION("that is fenced") {
    NodeResumed fenced = resume(12, "b", 1);
    fenced.state = NodeResumed::State::Stopped;
    CHECK(sent<Rejoin>(after({}, fenced)).size() == 3);
  }
  SECTION("that does not come") {
    CHECK(sent<Rejoin>(pass(5s, {9, 11, 13})).empty());
    CHECK(sent<Rejoin>(pass(3s, {9, 11, 13})).size() == 2);
  }
  CHECK(rendezvous.phase() == Rendezvous::Phase::Gathering);
}

TEST_CASE_METHOD(SilentRound, "rendezvous: a lost round does not go on beside the next one",
                 "[unit][rendezvous]") {
  after({}, joiner(8, "newcomer"));
  const auto next = pass(UnseenWorkers::kMaxWait, {8, 9});
  REQUIRE_FALSE(sent<PrepareStore>(next).empty());
  CHECK(sent<Rejoin>(back(1)).size() == 1);
}

TEST_CASE_METHOD(ResumeTest, "rendezvous: nodes that are back before all are lost go on, too",
                 "[unit][rendezvous]") {
  three_in_a_round();
  for (const std::uint32_t id : {1, 2, 3})
    after(400ms, NodeResumed(resume(id, std::string(1, static_cast<char>('a' + id - 1)),
                                    static_cast<int>(id) - 1)));
  after({}, ConnectionLost{{2}});
  after({}, ConnectionLost{{3}});
  after({}, ConnectionLost{{1}});
  // The lease of one node ends before those of the others.
  REQUIRE(anyone_is_lost(pass(5100ms, {})));
  for (const std::uint32_t id : {1, 2, 3})
    after({}, resume(id + 10, std::string(1, static_cast<char>('a' + id - 1)),
                     static_cast<int>(id) - 1));
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
}

TEST_CASE_METHOD(ResumeTest, "rendezvous: some closed connections are dead nodes",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, ConnectionLost{{2}});
  after({}, ConnectionLost{{3}});
  CHECK(anyone_is_lost(pass(1s, {1})));
}

TEST_CASE_METHOD(ResumeTest, "rendezvous: a proxy's closed connection is silence",
                 "[unit][rendezvous]") {
  NodeJoined behind = joiner(1, "a");
  behind.proxied = true;
  after({}, behind);
  after({}, joiner(2, "b"));
  ready(after({}, joiner(3, "c")));
  after({}, ConnectionLost{{1}});
  CHECK_FALSE(anyone_is_lost(pass(4s, {2, 3})));
  CHECK(anyone_is_lost(pass(2s, {2, 3})));
}

TEST_CASE_METHOD(ResumeTest, "rendezvous: a host waits by the longest lease that a node has had",
                 "[unit][rendezvous]") {
  const auto report = [&](std::uint32_t id, const char* name, int rank, Duration lease) {
    NodeResumed event = resume(id, name, rank, kOldLife, 4);
    event.join.lease = lease;
    return after({}, event);
  };
  report(1, "a", 0, 40s);
  report(2, "b", 1, 0s);
  CHECK(recovered(pass(35s, {1, 2})) == nullptr);
  const auto late = pass(10s, {1, 2});
  REQUIRE(recovered(late) != nullptr);
  CHECK_FALSE(recovered(late)->whole);
}

TEST_CASE_METHOD(ResumeTest, "rendezvous: nodes that come back one after the other are waited for",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 4));
  pass(5s, {1});
  after({}, resume(2, "b", 1, kOldLife, 4));
  CHECK(recovered(pass(5s, {1, 2})) == nullptr);
  const auto back = after({}, resume(3, "c", 2, kOldLife, 4));
  REQUIRE(recovered(back) != nullptr);
  CHECK(recovered(back)->whole);
}

TEST_CASE("participant: the host's lease counts, shorter or longer", "[unit][rendezvous]") {
  const Duration hosts = GENERATE(as<Duration>(), 2s, 5s, 30s);
  ParticipantTest test;
  test.feed(Participant::Connected{{.lease = hosts, .resumes = true, .outlives_nodes = true}});
  CHECK(test.participant->lease() == hosts);
}

TEST_CASE("participant: a resume reports the longest lease since the round began",
          "[unit][rendezvous]") {
  ParticipantTest test;
  test.run_round();
  test.feed(Participant::ConnectionBroke{"reset"});
  test.feed(Participant::Connected{{.lease = 2s, .resumes = true, .outlives_nodes = true}});
  test.feed(Participant::ConnectionBroke{"reset"});
  const auto resumes = ParticipantTest::sent<NodeResumed>(
      test.feed(Participant::Connected{{.lease = 3s, .resumes = true, .outlives_nodes = true}}));
  REQUIRE(resumes.size() == 1);
  CHECK(resumes[0].join.lease == 5s);
  CHECK(test.participant->lease() == 3s);
}

TEST_CASE("participant: behind a proxy, refused is no evidence", "[unit][rendezvous]") {
  const bool proxied = GENERATE(false, true);
  ParticipantTest test;
  test.run_round(1);
  test.feed(Participant::ConnectionBroke{"reset"});
  test.feed(
      Participant::Connected{{.lease = 5s, .resumes = true, .outlives_nodes = true}, proxied});
  test.hear(Resumed{{}, 4, 40, 8});
  test.feed(Participant::ConnectionBroke{"reset"});
  bool stopped = false;
  for (int i = 0; i < 40 && !stopped; ++i) {
    test.now += 500ms;
    stopped = ParticipantTest::has<Participant::RestartWorkers>(test.feed(
        Participant::ConnectFailed{Participant::ConnectFailed::Why::NobodyListens, "refused"}));
  }
  CHECK(stopped == proxied);
}

}  // namespace
}  // namespace muster::testing

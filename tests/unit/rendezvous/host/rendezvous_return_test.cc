// A host that was started again while nodes of its round are still on their way back.

#include "tests/unit/rendezvous/host/rendezvous_resume_fixture.h"

namespace muster::testing {
namespace {

struct ReturnTest : ResumeTest {
  /// The node has stopped its workers, because it took itself for cut off, and joins again.
  NodeJoined fenced(std::uint32_t id, const std::string& addr) const {
    NodeJoined event = joiner(id, addr);
    event.last_round = 5;
    event.life = kOldLife;
    event.generation = generation;
    return event;
  }
  RendezvousActions finished(std::uint32_t id, const std::string& addr, int rank) {
    NodeResumed event = resume(id, addr, rank, kOldLife, 5);
    event.state = NodeResumed::State::Finished;
    return after({}, event);
  }
};

TEST_CASE_METHOD(ReturnTest,
                 "return: a job does not fail for too few nodes while its nodes come back",
                 "[unit][rendezvous]") {
  CHECK(finished(1, "a", 0).empty());
  after({}, fenced(2, "b"));
  CHECK_FALSE(rendezvous.outcome());
  SECTION("the third node comes later") {
    pass(500ms, {1, 2});
    after({}, fenced(3, "c"));
    CHECK_FALSE(rendezvous.outcome());
    const auto complete = sent<RoundComplete>(ready(pass(31s, {1, 2, 3})));
    CHECK(complete.size() == 2);
    CHECK_FALSE(rendezvous.outcome());
  }
  SECTION("it does not come") {
    REQUIRE(rendezvous.next_deadline());
    pass(5900ms, {1, 2});
    CHECK_FALSE(rendezvous.outcome());
    CHECK(rendezvous.next_deadline() == now + 100ms);
    const auto ended = sent<RunEnded>(pass(100ms, {1, 2}));
    REQUIRE(ended.contains(2));
    CHECK_FALSE(ended.at(2).succeeded);
    CHECK_THAT(ended.at(2).why, Catch::Contains("1 is left to go on"));
  }
}

TEST_CASE_METHOD(ReturnTest, "return: a job has not succeeded because only finished nodes are back",
                 "[unit][rendezvous]") {
  finished(1, "a", 0);
  after({}, fenced(2, "b"));
  after({}, NodeLeft{{2}});
  CHECK_FALSE(rendezvous.outcome());
  after({}, fenced(3, "c"));
  pass(6s, {1, 3});
  REQUIRE(rendezvous.outcome());
  CHECK_FALSE(rendezvous.outcome()->succeeded);
}

TEST_CASE_METHOD(ReturnTest, "return: the next round waits for the nodes that are not back yet",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 5));
  CHECK(sent<Rejoin>(after({}, fenced(2, "b"))).contains(1));
  NodeJoined again = fenced(1, "a");
  again.life = 7;
  CHECK(after({}, again).empty());
  CHECK(rendezvous.phase() == Rendezvous::Phase::Gathering);
  SECTION("a newcomer does not take their places") {
    CHECK(after({}, joiner(4, "d")).empty());
    CHECK(rendezvous.participants() == 2);
    CHECK(sent<PrepareStore>(after({}, fenced(3, "c"))).size() == 1);
    CHECK(rendezvous.participants() == 3);
  }
  SECTION("they come") {
    pass(500ms, {1, 2});
    CHECK(sent<RoundComplete>(ready(after({}, fenced(3, "c")))).size() == 3);
  }
  SECTION("they do not come in time") {
    CHECK(sent<PrepareStore>(pass(5900ms, {1, 2})).empty());
    CHECK(sent<RoundComplete>(ready(pass(100ms, {1, 2}))).size() == 2);
  }
}

TEST_CASE_METHOD(ReturnTest, "return: a run that is closed meanwhile goes on with its round",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 5));
  const WallTime wall{1'790'000'000'000'000};
  const RendezvousState seen = rendezvous.render(now, wall);
  RendezvousState closed = seen;
  closed.closed = true;
  rendezvous.propose({{9}, seen, closed}, now, wall);
  REQUIRE(rendezvous.closed());
  CHECK(rendezvous.recovering());
  SECTION("all are back") {
    after({}, resume(2, "b", 1, kOldLife, 5));
    const auto all = after({}, resume(3, "c", 2, kOldLife, 5));
    CHECK(sent<Resumed>(all).size() == 3);
    CHECK(sent<RunClosed>(all).size() == 3);
    CHECK(pass(10s, {1, 2, 3}).empty());
    CHECK_FALSE(rendezvous.outcome());
  }
  SECTION("one is missing: there is no further round") {
    CHECK_THAT(sent<RunEnded>(pass(7s, {1})).at(1).why, Catch::Contains("the run is closed"));
  }
  CHECK(sent<JoinRefused>(after({}, joiner(4, "d"))).size() == 1);
}

}  // namespace
}  // namespace muster::testing

// A host that has lost all nodes of a round by silence: their workers may still run where the host
// cannot see them.

#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMax = UnseenWorkers::kMaxWait;

/// a and b are in round 0, on the connections 1 and 2. c is a newcomer for which --nnodes=1:2 has
/// no place, and which may go on alone when a and b are gone.
struct UnseenTest : RendezvousTest {
  UnseenTest() : RendezvousTest(settings_of_the_run()) {
    after({}, joiner(1, "a"));
    const auto complete = sent<RoundComplete>(ready(after({}, joiner(2, "b"))));
    REQUIRE(complete.size() == 2);
    generation = complete.at(1).generation;
    after({}, joiner(3, "c"));
    REQUIRE(rendezvous.phase() == Rendezvous::Phase::Running);
  }
  static RunSettings settings_of_the_run() {
    RunSettings run{.min_nodes = 1, .max_nodes = 2, .max_restarts = 1};
    run.last_call_timeout = 3s;
    return run;
  }
  /// The leases of a and b end, and then the last call.
  void both_fall_silent() {
    const auto told = pass(20s, {3});
    CHECK(sent<PrepareStore>(told).empty());
    REQUIRE(rendezvous.phase() == Rendezvous::Phase::Gathering);
    REQUIRE(rendezvous.participants() == 1);
  }
  std::int64_t generation = 0;
};

TEST_CASE_METHOD(UnseenTest,
                 "rendezvous: no round begins while all nodes of the last one are silent",
                 "[unit][rendezvous]") {
  both_fall_silent();
  CHECK_THAT(std::string(rendezvous.reason()), Catch::Contains("all nodes of round 0"));
  CHECK(rendezvous.next_deadline() <= now + 5s);  // c's lease: no deadline is in the past.
  CHECK(rendezvous.next_deadline() > now);
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: the wait for a silent round has an end",
                 "[unit][rendezvous]") {
  both_fall_silent();
  CHECK(sent<PrepareStore>(pass(kMax - 25s, {3})).empty());
  CHECK(sent<PrepareStore>(pass(20s, {3})).contains(3));
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: the wait ends when one node of the silent round joins",
                 "[unit][rendezvous]") {
  both_fall_silent();
  NodeJoined back = joiner(4, "b");
  back.generation = generation;
  CHECK(sent<PrepareStore>(after({}, back)).size() == 1);
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: the wait ends when a new agent replaces a silent one",
                 "[unit][rendezvous]") {
  both_fall_silent();
  NodeJoined rebooted = joiner(4, "a");
  rebooted.name.pid = 77;
  rebooted.instance = "another agent of a";
  CHECK(sent<PrepareStore>(after({}, rebooted)).size() == 1);
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: the new agent may come before the silence is noticed",
                 "[unit][rendezvous]") {
  NodeJoined rebooted = joiner(4, "a");
  rebooted.name.pid = 77;
  rebooted.instance = "another agent of a";
  after({}, rebooted);
  CHECK_FALSE(sent<PrepareStore>(pass(20s, {3, 4})).empty());
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: a newcomer from another host does not end the wait",
                 "[unit][rendezvous]") {
  both_fall_silent();
  CHECK(sent<PrepareStore>(after({}, joiner(4, "d"))).empty());
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: a closed connection is no silence",
                 "[unit][rendezvous]") {
  after({}, ConnectionLost{{2}});
  CHECK(sent<PrepareStore>(pass(15s, {3})).contains(3));
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: nodes that left, failed or finished are not silent",
                 "[unit][rendezvous]") {
  SECTION("left") {
    after({}, NodeLeft{{2}});
  }
  SECTION("failed") {
    after({}, WorkersFailed{{2}, 0, "rank 1 exited with 1"});
  }
  SECTION("finished") {
    after({}, NodeFinished{{2}, 0, true, {}});
  }
  CHECK(sent<PrepareStore>(pass(15s, {3})).contains(3));
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: an operator's restart ends the wait for silent nodes",
                 "[unit][rendezvous]") {
  both_fall_silent();
  CHECK(rendezvous.objection_to(OperatorAsked::What::Restart).empty());
  CHECK(sent<PrepareStore>(after({}, OperatorAsked{OperatorAsked::What::Restart})).contains(3));
}

TEST_CASE_METHOD(UnseenTest, "rendezvous: a restarted host waits for the silent nodes, too",
                 "[unit][rendezvous]") {
  RendezvousTest restarted(settings);
  RunRecord record{.settings = settings,
                   .life = 7,
                   .round = 1,
                   .generation = generation,
                   .highest_generation = generation,
                   .had_round = true,
                   .last_world = 2};
  restarted.rendezvous.restore(record, {}, restarted.now);
  restarted.after({}, joiner(3, "c"));
  CHECK(sent<PrepareStore>(restarted.pass(20s, {3})).empty());
  CHECK(sent<PrepareStore>(restarted.pass(kMax, {3})).contains(3));
}

}  // namespace
}  // namespace muster::testing

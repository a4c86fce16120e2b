// Nodes that have finished, nodes that are gone, and nodes that wait for others.

#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

/// A round of `nodes` nodes, "a" with client 1 and so on.
struct InARound : RendezvousTest {
  explicit InARound(RunSettings run, int nodes) : RendezvousTest(run) {
    RendezvousActions actions;
    for (int i = 1; i <= nodes; ++i)
      append(actions,
             joins(static_cast<std::uint32_t>(i), std::string(1, static_cast<char>('`' + i))));
    if (nodes < run.max_nodes) {
      std::vector<std::uint32_t> alive;
      for (int i = 1; i <= nodes; ++i)
        alive.push_back(static_cast<std::uint32_t>(i));
      append(actions, pass(30s, alive));
    }
    REQUIRE(sent<RoundComplete>(ready(actions)).size() == static_cast<std::size_t>(nodes));
  }
  RendezvousActions finishes(std::uint32_t id) {
    return after(1s, NodeFinished{{id}, rendezvous.round(), true, ""});
  }
};

RunSettings exactly(int nodes) {
  return {.min_nodes = nodes, .max_nodes = nodes, .max_restarts = 3};
}

TEST_CASE(
    "rendezvous: if the last unfinished node is lost, the job has failed and the others learn it",
    "[unit][rendezvous]") {
  InARound test(exactly(2), 2);
  CHECK(test.finishes(1).empty());
  RendezvousActions actions;
  std::string why;
  SECTION("its connection closes") {
    actions = test.after(1s, ConnectionLost{{2}});
    why = "its connection closed";
  }
  SECTION("it leaves") {
    actions = test.after(1s, NodeLeft{{2}});
    why = "it left";
  }
  SECTION("it is silent") {
    actions = test.pass(6s, {1});
    why = "not heard for 5 s";
  }
  const auto ended = InARound::sent<RunEnded>(actions);
  REQUIRE(ended.size() == 1);
  CHECK_FALSE(ended.at(1).succeeded);
  CHECK(ended.at(1).who->addr == "b");
  CHECK(ended.at(1).why ==
        "gone before its part was finished (rank 1: " + why +
            "); 1 node has finished, and none is left to go on: --nnodes asks for "
            "at least 2");
  CHECK(test.rendezvous.phase() == Rendezvous::Phase::Ended);
  // A replacement node is refused at once, because the run has ended.
  const auto refused = InARound::sent<JoinRefused>(test.joins(3, "c"));
  CHECK(refused.at(3).why == JoinRefused::Why::Closed);
}

TEST_CASE("rendezvous: the last two unfinished nodes may be lost one after the other",
          "[unit][rendezvous]") {
  InARound test({.min_nodes = 1, .max_nodes = 3}, 3);
  test.finishes(1);
  CHECK(InARound::sent<RestartRound>(test.after(1s, ConnectionLost{{2}})).size() == 1);
  // The restart has begun, but no node is left for it. It has used none of --max-restarts.
  const auto ended = InARound::sent<RunEnded>(test.after(0s, ConnectionLost{{3}}));
  REQUIRE(ended.size() == 1);
  CHECK_FALSE(ended.at(1).succeeded);
  CHECK(ended.at(1).who->addr == "b");
}

TEST_CASE("rendezvous: the nodes left after others have finished go on if they are enough",
          "[unit][rendezvous]") {
  InARound test({.min_nodes = 1, .max_nodes = 3}, 3);
  test.finishes(1);
  CHECK(InARound::sent<RestartRound>(test.after(1s, ConnectionLost{{2}})).size() == 1);
  const auto complete = InARound::sent<RoundComplete>(test.ready(test.joins(3, "c")));
  REQUIRE(complete.size() == 1);
  CHECK(complete.at(3).group_world_size == 1);
  // Its work includes the part of b.
  const auto ended = InARound::sent<RunEnded>(test.finishes(3));
  REQUIRE(ended.size() == 2);
  CHECK(ended.at(1).succeeded);
}

TEST_CASE("rendezvous: spares replace nodes that are lost after others have finished",
          "[unit][rendezvous]") {
  InARound test(exactly(2), 2);
  for (const std::uint32_t id : {8, 9}) {
    auto spare = test.join(id, "spare" + std::to_string(id));
    spare.spare = id == 9;  // One is marked as a spare, one came when all places were taken.
    CHECK(test.after(0s, spare).empty());
  }
  test.finishes(1);
  const auto actions = test.after(1s, ConnectionLost{{2}});
  CHECK(InARound::sent<RunEnded>(actions).empty());
  const auto complete = InARound::sent<RoundComplete>(test.ready(actions));
  CHECK(complete.size() == 2);
  CHECK(complete.contains(8));
  CHECK(complete.contains(9));
}

TEST_CASE_METHOD(RendezvousTest,
                 "rendezvous: a spare steps into a first round that had enough nodes and lost one",
                 "[unit][rendezvous]") {
  joins(1, "a");
  auto spare = join(9, "spare");
  spare.spare = true;
  after(0s, spare);
  pass(20s, {1, 9});
  joins(2, "b");  // The minimum is reached: the last call outlasts the wait for the spare.
  pass(25s, {1, 2, 9});
  after(0s, ConnectionLost{{2}});
  CHECK(sent<PrepareStore>(pass(25s, {1, 9})).empty());  // Another node may still come.
  CHECK(sent<PrepareStore>(pass(40s, {1, 9})).size() == 1);
  CHECK(rendezvous.participants() == 2);
}

TEST_CASE("rendezvous: a newcomer that leaves before its first round does not fail the job",
          "[unit][rendezvous]") {
  InARound test({.min_nodes = 1, .max_nodes = 2}, 1);
  CHECK(InARound::sent<RestartRound>(test.joins(2, "b")).size() == 1);
  // Its workers had succeeded when it got RestartRound.
  test.after(0s, NodeFinished{{1}, 0, true, ""});
  const auto ended = InARound::sent<RunEnded>(test.after(1s, ConnectionLost{{2}}));
  REQUIRE(ended.size() == 1);
  CHECK(ended.at(1).succeeded);
}

TEST_CASE("rendezvous: a finished node that was silent for a while is still told the end",
          "[unit][rendezvous]") {
  InARound test(exactly(2), 2);
  test.finishes(1);
  test.pass(20s, {2});
  CHECK(test.after(0s, KeptAlive{{1}}).empty());  // The node is still a member.
  CHECK(InARound::sent<RunEnded>(test.finishes(2)).size() == 2);
}

TEST_CASE(
    "rendezvous: a failed job ends at once if too few nodes are left after others have finished",
    "[unit][rendezvous]") {
  auto run = exactly(2);
  run.join_timeout = 10s;
  InARound test(run, 2);
  test.after(0s, WorkersFailed{{2}, 0, "rank 1 exited with 1"});
  // The other node's workers had succeeded by then: no node is left for another round.
  const auto ended = InARound::sent<RunEnded>(test.after(0s, NodeFinished{{1}, 0, true, ""}));
  REQUIRE(ended.size() == 2);
  CHECK(ended.at(1).why ==
        "rank 1 exited with 1; 1 node has finished, and 1 is left to go on: --nnodes asks for at "
        "least 2");
}

TEST_CASE("rendezvous: the missing nodes are named, also to newcomers and after the timeout",
          "[unit][rendezvous]") {
  auto run = exactly(3);
  run.join_timeout = 60s;
  InARound test(run, 3);
  test.after(0s, ConnectionLost{{2}});
  test.joins(1, "a");
  test.after(0s, ConnectionLost{{3}});
  const std::string waiting =
      "round 1: 1 of 3 nodes have joined (a_1_0); 2 more must come in place of b_1_0 (was rank 1), "
      "c_1_0 (was rank 2)";
  CHECK(test.rendezvous.reason() == waiting);
  test.joins(4, "d");
  CHECK(test.rendezvous.reason_for({4}) ==
        "round 1: 2 of 3 nodes have joined (a_1_0, d_1_0); 1 more must come in place of b_1_0 (was "
        "rank 1), c_1_0 (was rank 2)");
  test.after(0s, ConnectionLost{{4}});
  const auto refused = InARound::sent<JoinRefused>(test.pass(60s, {1}));
  CHECK(refused.at(1).text == "no round within 60 s (--rdzv-conf join_timeout): " + waiting);
}

TEST_CASE("rendezvous: a node that is back is not named as gone, and a new round forgets old names",
          "[unit][rendezvous]") {
  InARound test(exactly(2), 2);
  test.after(0s, ConnectionLost{{2}});
  test.joins(1, "a");
  test.ready(test.joins(7, "b"));
  CHECK(test.rendezvous.reason() == "round 1 runs with 2 nodes");
  test.after(0s, ConnectionLost{{1}});
  CHECK(test.rendezvous.reason() ==
        "round 2: 0 of 2 nodes have joined; to come back: b_1_0 (was rank 1); 1 more must come in "
        "place of a_1_0 (was rank 0)");
}

TEST_CASE("rendezvous: a node that is not let in is told why", "[unit][rendezvous]") {
  SECTION("no place") {
    InARound test(exactly(2), 2);
    test.joins(3, "c");
    CHECK(test.rendezvous.reason_for({3}) ==
          "round 0 runs with 2 nodes; 2 of 2 places are taken: this node waits as a spare");
  }
  SECTION("no place in the round that gathers") {
    InARound test(exactly(2), 2);
    test.after(0s, WorkersFailed{{1}, 0, "x"});
    test.joins(3, "c");
    CHECK_THAT(test.rendezvous.reason_for({3}),
               Catch::Contains("2 of 2 places are taken: this node waits as a spare"));
  }
  SECTION("a spare by name") {
    InARound test({.min_nodes = 1, .max_nodes = 3}, 1);
    auto spare = test.join(3, "c");
    spare.spare = true;
    test.after(0s, spare);
    CHECK(test.rendezvous.reason_for({3}) ==
          "round 0 runs with 1 node; this node is a spare, and steps in when another is missing");
  }
  SECTION("a policy") {
    const auto policy = GENERATE(ScalePolicy::AtRestart, ScalePolicy::Never);
    InARound test({.min_nodes = 1, .max_nodes = 3, .scale_policy = policy}, 1);
    test.joins(3, "c");
    CHECK_THAT(test.rendezvous.reason_for({3}),
               Catch::Contains("--scale-policy=" + std::string(to_string(policy))));
  }
  SECTION("others have finished") {
    InARound test({.min_nodes = 1, .max_nodes = 3}, 2);
    test.finishes(1);
    test.joins(3, "c");
    CHECK(test.rendezvous.reason_for({3}) ==
          "round 0 runs with 2 nodes; 1 has finished, still at work: b_1_0 (rank 1); this node is "
          "let in only if those that are still at work restart");
  }
}

TEST_CASE("rendezvous: every loss is noted once, and an orderly end is no loss",
          "[unit][rendezvous]") {
  InARound test({.min_nodes = 1, .max_nodes = 3}, 3);
  const auto gone = [](const RendezvousActions& actions) {
    std::vector<NodeGone> found;
    for (const auto& action : actions)
      if (const auto* note = std::get_if<NodeGone>(&action)) found.push_back(*note);
    return found;
  };
  const auto lost = gone(test.after(0s, ConnectionLost{{2}}));
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].who.addr == "b");
  CHECK(lost[0].rank == 1);
  CHECK(lost[0].what == "its connection closed");
  const auto left = gone(test.after(0s, NodeLeft{{3}}));
  REQUIRE(left.size() == 1);
  CHECK(left[0].cause == RestartCause::NodeLeft);
  test.ready(test.joins(1, "a"));
  CHECK(gone(test.finishes(1)).empty());
  CHECK(gone(test.after(0s, ConnectionLost{{1}})).empty());
}

// --- connections that come back -----------------------------------------------------------------

TEST_CASE("rendezvous: a round or a restart that was sent to a dead connection is sent again",
          "[unit][rendezvous]") {
  InARound test(exactly(2), 2);
  test.after(0s, WorkersFailed{{1}, 0, "x"});
  const auto back = [&](std::uint32_t connection, std::int64_t last_round) {
    auto event = test.join(connection, "b");
    event.last_round = last_round;
    return test.after(0s, event);
  };
  SECTION("the round's ranks") {
    test.joins(2, "b");
    test.ready(test.joins(1, "a"));
    const auto told = InARound::sent<RoundComplete>(back(9, 0));
    REQUIRE(told.size() == 1);
    CHECK(told.at(9).round == 1);
    CHECK(told.at(9).group_rank.value == 1);
    CHECK(told.at(9).workers->base_global_rank.value == 2);
    CHECK(told.at(9).store == StoreAddress{"store", 29400});
    CHECK(back(9, 0).empty());  // On the same connection it was sent before.
  }
  SECTION("the restart") {
    test.joins(1, "a");
    CHECK(InARound::sent<PrepareStore>(back(9, -1)).size() == 1);
  }
  SECTION("the call for the store") {
    test.joins(2, "b");
    test.joins(1, "a");
    auto event = test.join(9, "a");
    event.last_round = 0;
    const auto prepare = InARound::sent<PrepareStore>(test.after(0s, event));
    REQUIRE(prepare.contains(9));
    CHECK(InARound::sent<RoundComplete>(test.after(0s, StoreReady{{9}, 1, "s", 1})).size() == 2);
  }
}

// --- agents of one name -------------------------------------------------------------------------

struct SameName : RendezvousTest {
  SameName() : RendezvousTest(exactly(2)) {}
  RendezvousActions joins_as(std::uint32_t id, std::string instance) {
    auto event = join(id, "host");
    event.instance = std::move(instance);
    return after(0s, event);
  }
};

TEST_CASE_METHOD(SameName, "rendezvous: two agents with one address and pid are two nodes",
                 "[unit][rendezvous]") {
  CHECK(joins_as(1, "i1").empty());
  const auto complete = sent<RoundComplete>(ready(joins_as(2, "i2")));
  REQUIRE(complete.size() == 2);
  CHECK(complete.at(1).group_rank.value != complete.at(2).group_rank.value);
  CHECK(*rendezvous.name_of({1}) == NodeName{"host", 1, 0});
  CHECK(*rendezvous.name_of({2}) == NodeName{"host", 1, 1});
  // Both restart and keep their places.
  CHECK(sent<RestartRound>(after(0s, WorkersFailed{{2}, 0, "x"})).size() == 2);
  joins_as(2, "i2");
  CHECK(sent<RoundComplete>(ready(joins_as(1, "i1"))).size() == 2);
}

TEST_CASE_METHOD(SameName,
                 "rendezvous: an instance that is back on a new connection keeps its place",
                 "[unit][rendezvous]") {
  joins_as(1, "i1");
  CHECK(joins_as(9, "i1").empty());  // The host does not know yet that the old connection is dead.
  CHECK(rendezvous.members() == 1);
  CHECK(after(0s, ConnectionLost{{1}}).empty());
  CHECK(rendezvous.members() == 1);
  joins_as(2, "i2");
  joins_as(8, "i2");
  CHECK(*rendezvous.name_of({8}) == NodeName{"host", 1, 1});
  // The same holds if the first node of that name is gone by then.
  after(0s, ConnectionLost{{9}});
  joins_as(7, "i2");
  CHECK(rendezvous.members() == 1);
  CHECK(*rendezvous.name_of({7}) == NodeName{"host", 1, 1});
}

TEST_CASE_METHOD(SameName, "rendezvous: a new agent with a finished one's name is another node",
                 "[unit][rendezvous]") {
  joins_as(1, "i1");
  ready(joins_as(2, "i2"));
  after(0s, NodeFinished{{1}, 0, true, ""});
  after(0s, ConnectionLost{{1}});
  joins_as(3, "i3");
  CHECK(rendezvous.members() == 3);
  CHECK(sent<RunEnded>(after(0s, NodeFinished{{2}, 0, true, ""})).at(2).succeeded);
}

TEST_CASE_METHOD(SameName, "rendezvous: an older muster does not take a newer one's place",
                 "[unit][rendezvous]") {
  joins_as(1, "i1");
  const auto refused = sent<JoinRefused>(joins_as(2, ""));
  REQUIRE(refused.size() == 1);
  CHECK(refused.at(2).why == JoinRefused::Why::NameTaken);
  CHECK_THAT(refused.at(2).text, Catch::Contains("host_1_0"));
}

TEST_CASE_METHOD(SameName, "rendezvous: extreme local ids of nodes do not overflow",
                 "[unit][rendezvous]") {
  for (const std::int64_t number : {std::int64_t{-5}, std::numeric_limits<std::int64_t>::max()})
    for (const std::uint32_t id : {1, 2}) {
      auto event = join(number < 0 ? id + 10 : id, "far");
      event.name.local_id = number;
      event.instance = "i" + std::to_string(id) + std::to_string(number);
      after(0s, event);
    }
  CHECK(rendezvous.members() == 4);
  CHECK(*rendezvous.name_of({2}) == NodeName{"far", 1, 1});
}

}  // namespace
}  // namespace muster::testing

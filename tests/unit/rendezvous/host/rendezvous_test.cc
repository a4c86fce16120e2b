#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

TEST_CASE_METHOD(RendezvousTest, "rendezvous: the maximum completes the round at once",
                 "[unit][rendezvous]") {
  CHECK(joins(1, "b").empty());
  CHECK(joins(2, "a").empty());
  CHECK(rendezvous.next_deadline() == now + 5s);  // The lease; the last call ends later.
  CHECK(joins(3, "d").empty());
  const auto actions = joins(4, "c");
  REQUIRE(actions.size() == 1);
  CHECK(std::get<PrepareStore>(actions[0]).to.value == 2);  // "a" is rank 0.
  const auto complete = sent<RoundComplete>(ready(actions));
  REQUIRE(complete.size() == 4);
  CHECK(complete.at(1).group_rank.value == 1);
  CHECK(complete.at(1).workers->base_global_rank.value == 2);
  CHECK(complete.at(1).workers->world_size == 8);
  CHECK(complete.at(1).store == StoreAddress{"store", 29400});
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
}

TEST_CASE_METHOD(RendezvousTest, "rendezvous: the end of the last call completes the round",
                 "[unit][rendezvous]") {
  joins(1, "a");
  pass(5s, {1});
  joins(2, "b");
  CHECK(sent<PrepareStore>(pass(29s, {1, 2})).empty());
  CHECK(rendezvous.reason() ==
        "round 0: 2 of 2 to 4 nodes have joined (a_1_0, b_1_0); the last call is running");
  CHECK(sent<PrepareStore>(pass(1s, {1, 2})).size() == 1);
}

TEST_CASE_METHOD(RendezvousTest,
                 "rendezvous: preferred ranks decide the order, and then the host comes first",
                 "[unit][rendezvous]") {
  auto preferred = join(1, "z");
  preferred.preferred_rank = 0;
  auto host = join(2, "y");
  host.hosts_rendezvous = true;
  after(0s, preferred);
  after(0s, host);
  joins(3, "a");
  const auto complete = sent<RoundComplete>(ready(joins(4, "b")));
  CHECK(complete.at(1).group_rank.value == 0);
  CHECK(complete.at(2).group_rank.value == 1);
  CHECK(complete.at(3).group_rank.value == 2);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: a failure restarts everybody at once, with the same ranks",
                 "[unit][rendezvous]") {
  const auto restart = sent<RestartRound>(after(1s, WorkersFailed{{3}, 0, "rank 5 exited with 1"}));
  REQUIRE(restart.size() == 4);
  CHECK(restart.at(1).who.addr == "c");
  CHECK(restart.at(1).what == "rank 5 exited with 1");
  // A second failure in the same round does not count as another restart.
  CHECK(after(0s, WorkersFailed{{2}, 0, "rank 2 was killed"}).empty());
  CHECK(rendezvous.restarts_used() == 1);
  joins(4, "d");
  joins(2, "b");
  joins(1, "a");
  const auto complete = sent<RoundComplete>(ready(joins(3, "c")));
  REQUIRE(complete.size() == 4);
  CHECK(complete.at(4).group_rank.value == 3);
  CHECK(complete.at(4).round == 1);
  CHECK(complete.at(4).restart_count == 1);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: without restarts left a failure ends the job for all",
                 "[unit][rendezvous]") {
  after(1s, WorkersFailed{{3}, 0, "x"});
  for (const auto& [id, addr] : {std::pair{1U, "a"}, {2U, "b"}, {3U, "c"}})
    joins(id, addr);
  ready(joins(4, "d"));
  const auto ended = sent<RunEnded>(after(1s, WorkersFailed{{1}, 1, "rank 0 exited with 7"}));
  REQUIRE(ended.size() == 4);
  CHECK_FALSE(ended.at(2).succeeded);
  CHECK(ended.at(2).who->addr == "a");
  CHECK(ended.at(2).why == "rank 0 exited with 7; its 1 restart (--max-restarts) is used");
  CHECK(sent<JoinRefused>(joins(9, "late")).at(9).why == JoinRefused::Why::Closed);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: a lost node's survivors go on without a last call",
                 "[unit][rendezvous]") {
  const auto restart = sent<RestartRound>(after(1s, ConnectionLost{{2}}));
  REQUIRE(restart.size() == 3);
  CHECK(restart.at(1).cause == RestartCause::NodeLost);
  joins(1, "a");
  joins(3, "c");
  const auto complete = sent<RoundComplete>(ready(joins(4, "d")));
  REQUIRE(complete.size() == 3);
  CHECK(complete.at(1).group_rank.value == 0);
  CHECK(complete.at(3).group_rank.value == 2);
  CHECK(complete.at(4).group_rank.value == 1);  // It gets the rank of the missing node.
  CHECK(rendezvous.restarts_used() == 0);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: a silent node is lost after its lease",
                 "[unit][rendezvous]") {
  CHECK(sent<RestartRound>(pass(4s, {1, 2, 3})).empty());
  const auto restart = sent<RestartRound>(pass(1s, {1, 2, 3}));
  REQUIRE(restart.size() == 3);
  CHECK(restart.at(1).who.addr == "d");
  CHECK(restart.at(1).what == "not heard for 5 s");
  // If the node is alive after all, the host answers its keep-alive.
  CHECK(sent<NotAMember>(after(0s, KeptAlive{{4}})).size() == 1);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: a spare takes the missing node's rank",
                 "[unit][rendezvous]") {
  auto spare = join(5, "spare");
  spare.spare = true;
  CHECK(after(0s, spare).empty());
  CHECK(sent<RestartRound>(after(1s, ConnectionLost{{1}})).size() == 3);
  joins(2, "b");
  joins(3, "c");
  const auto complete = sent<RoundComplete>(ready(joins(4, "d")));
  REQUIRE(complete.size() == 4);
  CHECK(complete.at(5).group_rank.value == 0);
}

TEST_CASE("rendezvous: a late node restarts the others only if the policy says so",
          "[unit][rendezvous]") {
  const auto policy = GENERATE(ScalePolicy::Now, ScalePolicy::AtRestart, ScalePolicy::Never);
  RendezvousTest test({.min_nodes = 2, .max_nodes = 3, .max_restarts = 3, .scale_policy = policy});
  test.joins(1, "a");
  test.joins(2, "b");
  test.ready(test.pass(30s, {1, 2}));
  const auto restart = test.sent<RestartRound>(test.joins(3, "c"));
  CHECK(restart.size() == (policy == ScalePolicy::Now ? 2U : 0U));
  if (policy != ScalePolicy::Now) test.after(1s, WorkersFailed{{1}, 0, "x"});
  test.joins(1, "a");
  const auto complete = test.sent<RoundComplete>(test.ready(test.joins(2, "b")));
  CHECK(complete.size() == (policy == ScalePolicy::Never ? 2U : 3U));
}

TEST_CASE_METHOD(FourNodes, "rendezvous: the last to finish ends the job well, for everybody",
                 "[unit][rendezvous]") {
  for (std::uint32_t id = 1; id <= 3; ++id)
    CHECK(after(1s, NodeFinished{{id}, 0, true, ""}).empty());
  const auto ended = sent<RunEnded>(after(1s, NodeFinished{{4}, 0, true, ""}));
  REQUIRE(ended.size() == 4);
  CHECK(ended.at(1).succeeded);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: a round does not wait for nodes that have finished",
                 "[unit][rendezvous]") {
  after(1s, NodeFinished{{1}, 0, true, ""});
  after(0s, ConnectionLost{{1}});  // A finished node may go without a restart.
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  SECTION("enough are left: they restart without it") {
    CHECK(sent<RestartRound>(after(1s, WorkersFailed{{2}, 0, "x"})).size() == 3);
    joins(2, "b");
    joins(3, "c");
    CHECK(sent<RoundComplete>(ready(joins(4, "d"))).size() == 3);
  }
  SECTION("too few are left: it is over at once") {
    after(0s, NodeFinished{{2}, 0, true, ""});
    after(0s, NodeFinished{{3}, 0, true, ""});
    const auto ended = sent<RunEnded>(after(1s, WorkersFailed{{4}, 0, "x"}));
    REQUIRE(ended.size() == 3);
    CHECK_FALSE(ended.at(4).succeeded);
  }
}

TEST_CASE_METHOD(RendezvousTest, "rendezvous: unequal settings are refused, naming both sides",
                 "[unit][rendezvous]") {
  joins(1, "a");
  auto other = join(2, "b");
  other.run.max_nodes = 8;
  const auto refused = sent<JoinRefused>(after(0s, other));
  REQUIRE(refused.size() == 1);
  CHECK(refused.at(2).text ==
        "settings differ: this node (b_1_0) has --nnodes=2:8, and the host has --nnodes=2:4: give "
        "all nodes the same");
  CHECK(refused.at(2).settings_differ);
  CHECK(rendezvous.reason() ==
        "round 0: 1 of 2 to 4 nodes have joined (a_1_0); 1 more must come; a node was refused: "
        "b_1_0 has --nnodes=2:8, and the host has --nnodes=2:4");
  auto newer = join(3, "c");
  newer.protocol_version = 2;
  newer.muster_version = "9.0";
  CHECK(sent<JoinRefused>(after(0s, newer)).at(3).why == JoinRefused::Why::Version);
}

TEST_CASE_METHOD(RendezvousTest, "rendezvous: a join that times out learns which nodes are missing",
                 "[unit][rendezvous]") {
  joins(1, "a");
  CHECK(sent<JoinRefused>(pass(599s, {1})).empty());
  const auto refused = sent<JoinRefused>(pass(1s, {1}));
  REQUIRE(refused.size() == 1);
  CHECK(refused.at(1).text ==
        "no round within 600 s (--rdzv-conf join_timeout): round 0: 1 of 2 to 4 nodes have joined "
        "(a_1_0); 1 more must come");
}

TEST_CASE_METHOD(FourNodes, "rendezvous: an old join that arrives late has no effect",
                 "[unit][rendezvous]") {
  auto stale = join(2, "b");
  stale.last_round = -1;
  CHECK(after(0s, stale).empty());
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  after(1s, WorkersFailed{{1}, 0, "x"});
  joins(1, "a");
  joins(3, "c");
  joins(4, "d");
  CHECK(after(0s, stale).empty());
  CHECK(sent<PrepareStore>(joins(2, "b")).size() == 1);
}

// Seed 32619 of the simulation: the rendezvous had been restarted, and counted rounds from 0 again.
TEST_CASE_METHOD(FourNodes,
                 "rendezvous: a join that names a round of another run with this id is ignored",
                 "[unit][rendezvous]") {
  auto again = join(2, "b");
  REQUIRE(again.last_round == rendezvous.round());
  again.life = 6;
  CHECK(after(0s, again).empty());
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  again.life = 7;
  const auto restarts = sent<RestartRound>(after(0s, again));
  REQUIRE(restarts.contains(1));
  CHECK(restarts.at(1).life == 7);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: the reason names the missing nodes",
                 "[unit][rendezvous]") {
  after(1s, ConnectionLost{{1}});
  joins(2, "b");
  CHECK(rendezvous.reason() ==
        "round 1: 1 of 2 to 4 nodes have joined (b_1_0); to come back: c_1_0 (was rank 2), "
        "d_1_0 (was rank 3); gone: a_1_0 (was rank 0)");
}

}  // namespace
}  // namespace muster::testing

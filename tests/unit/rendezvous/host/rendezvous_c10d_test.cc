// The c10d door: torchrun nodes, simulated by TorchModel, without a network.

#include <catch2/catch.hpp>

#include "rendezvous/host/rendezvous.h"
#include "tests/support/torch_model.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using testing::TorchModel;
using Action = TorchModel::Action;

struct DoorTest {
  explicit DoorTest(std::optional<RunSettings> run = RunSettings{.min_nodes = 2, .max_nodes = 2})
      : rendezvous(RendezvousSetup{.run = run}) {}

  WallTime wall() const { return {1'790'000'000'000'000 + (now.time_since_epoch() / 1us)}; }
  const RendezvousState& shown() { return rendezvous.render(now, wall()); }
  TorchModel torch(std::string addr, int min = 2, int max = 2) {
    return TorchModel({std::move(addr), 7, 0}, {.min_nodes = min, .max_nodes = max});
  }
  /// `node` saw `seen`, applies `action` to it and proposes the result.
  ProposalVerdict does(TorchModel& node, std::uint32_t client, Action action,
                       const RendezvousState& seen) {
    node.state = seen;
    node.apply(action, wall());
    result = rendezvous.propose({{client}, seen, node.state}, now, wall());
    node.state = shown();
    return result.verdict;
  }
  ProposalVerdict does(TorchModel& node, std::uint32_t client, Action action) {
    return does(node, client, action, RendezvousState(shown()));
  }
  RendezvousActions joins(std::uint32_t id, std::string addr, RunSettings run) {
    return rendezvous.step(NodeJoined{.from = {id},
                                      .name = {std::move(addr), 1, 0},
                                      .role = "default",
                                      .run = run,
                                      .muster_version = "1"},
                           now);
  }

  Rendezvous rendezvous;
  Instant now{};
  ProposalResult result;
};

TEST_CASE_METHOD(DoorTest, "c10d door: two torchrun nodes form a round", "[unit][rendezvous]") {
  auto a = torch("a");
  auto b = torch("b");
  CHECK(rendezvous.untouched());
  CHECK(does(a, 1, Action::AddToParticipants) == ProposalVerdict::Accepted);
  CHECK(does(b, 2, Action::AddToParticipants) == ProposalVerdict::Accepted);
  CHECK(shown().complete);
  CHECK(*shown().participants.find(b.name()) == 1);
}

TEST_CASE_METHOD(DoorTest, "c10d door: muster and torchrun share a round; muster is rank 0",
                 "[unit][rendezvous]") {
  auto a = torch("a");  // By name it would be rank 0.
  joins(9, "m", {.min_nodes = 2, .max_nodes = 2});
  CHECK(shown().participants.contains({"m", 1, 0}));
  CHECK(does(a, 1, Action::AddToParticipants) == ProposalVerdict::Merged);
  CHECK(shown().complete);
  CHECK(*shown().participants.find({"m", 1, 0}) == 0);
  CHECK(std::holds_alternative<PrepareStore>(result.actions.at(0)));
  const auto told = rendezvous.step(StoreReady{{9}, 0, "m", 1}, now);
  REQUIRE(told.size() == 1);
  CHECK_FALSE(std::get<RoundComplete>(told[0]).workers);  // torchrun's workers are not known yet.
  CHECK(std::get<RoundComplete>(told[0]).store);
}

TEST_CASE_METHOD(DoorTest, "c10d door: a full round that cannot begin yet admits no other node",
                 "[unit][rendezvous]") {
  const RunSettings run{.min_nodes = 2, .max_nodes = 2};
  NodeJoined absent{
      .from = {8}, .name = {"l", 1, 0}, .role = "default", .run = run, .muster_version = "1"};
  absent.instance = "of l";
  absent.resumes = true;
  rendezvous.step(absent, now);
  rendezvous.step(ConnectionLost{{8}}, now);
  joins(9, "m", run);
  REQUIRE(shown().participants.size() == 2);
  REQUIRE_FALSE(shown().complete);
  auto a = torch("a");
  CHECK(does(a, 1, Action::AddToParticipants) == ProposalVerdict::Merged);
  CHECK(shown().participants.size() == 2);
  CHECK(shown().redundancy_list.contains(a.name()));
}

TEST_CASE("c10d door: harmless operations are merged into a newer state", "[unit][rendezvous]") {
  DoorTest test(RunSettings{.min_nodes = 1, .max_nodes = 3});
  auto a = test.torch("a", 1, 3);
  auto b = test.torch("b", 1, 3);
  test.does(a, 1, Action::AddToParticipants);
  test.does(b, 2, Action::AddToParticipants);
  const RendezvousState old = test.shown();
  test.now += 6s;
  SECTION("a keep-alive") {
    CHECK(test.does(a, 1, Action::KeepAlive, old) == ProposalVerdict::Accepted);
    CHECK(test.does(b, 2, Action::KeepAlive, old) == ProposalVerdict::Merged);
    CHECK(*test.shown().last_heartbeats.find(a.name()) == test.wall());
    CHECK(*test.shown().last_heartbeats.find(b.name()) == test.wall());
  }
  SECTION("a close") {
    CHECK(test.does(a, 1, Action::KeepAlive, old) == ProposalVerdict::Accepted);
    CHECK(test.does(b, 2, Action::MarkClosed, old) == ProposalVerdict::Merged);
    CHECK(test.shown().closed);
  }
  SECTION("a leave and an entry in the wait list, after the round is complete") {
    for (int i = 0; i < 6; ++i) {  // Until the last call of 30 s ends.
      test.now += 5s;
      test.does(a, 1, Action::KeepAlive);
      test.does(b, 2, Action::KeepAlive);
      test.rendezvous.step(RendezvousTimePassed{}, test.now);
    }
    const RendezvousState complete = test.shown();
    REQUIRE(complete.complete);
    auto c = test.torch("c", 1, 3);
    CHECK(test.does(b, 2, Action::RemoveFromParticipants, complete) == ProposalVerdict::Accepted);
    CHECK(test.does(c, 3, Action::AddToWaitList, complete) == ProposalVerdict::Merged);
    CHECK_FALSE(test.shown().participants.contains(b.name()));
    CHECK(test.shown().wait_list.contains(c.name()));
  }
  SECTION("nodes that nobody hears any more leave the round") {
    test.now += 25s;
    test.rendezvous.step(RendezvousTimePassed{}, test.now);
    REQUIRE_FALSE(test.shown().complete);  // The host has heard no node for 31 s.
  }
}

TEST_CASE("c10d door: a join is not merged while the minimum is not known", "[unit][rendezvous]") {
  DoorTest test{std::nullopt};
  auto a = test.torch("a", 3, 4);
  auto b = test.torch("b", 3, 4);
  const RendezvousState old = test.shown();
  CHECK(test.does(a, 1, Action::AddToParticipants, old) == ProposalVerdict::Accepted);
  CHECK(test.does(b, 2, Action::AddToParticipants, old) == ProposalVerdict::Lost);
  CHECK(test.shown().participants.size() == 1);
  // A keep-alive in between does not matter: a join does not depend on it.
  const RendezvousState seen = test.shown();
  test.now += 5s;
  test.does(a, 1, Action::KeepAlive);
  CHECK(test.does(b, 2, Action::AddToParticipants, seen) == ProposalVerdict::Merged);
  CHECK(test.shown().participants.size() == 2);
}

TEST_CASE("c10d door: with the minimum known, the host sets the deadline of a merged join",
          "[unit][rendezvous]") {
  DoorTest test(RunSettings{.min_nodes = 2, .max_nodes = 3});
  auto a = test.torch("a", 2, 3);
  auto b = test.torch("b", 2, 3);
  const RendezvousState old = test.shown();
  test.does(a, 1, Action::AddToParticipants, old);
  CHECK(test.does(b, 2, Action::AddToParticipants, old) == ProposalVerdict::Merged);
  CHECK(test.shown().deadline == WallTime{test.wall().microseconds + 30'000'000});
}

TEST_CASE_METHOD(DoorTest, "c10d door: heartbeats of muster nodes are renewed once per interval",
                 "[unit][rendezvous]") {
  joins(8, "m", {.min_nodes = 2, .max_nodes = 2});
  joins(9, "n", {.min_nodes = 2, .max_nodes = 2});
  shown();
  const auto revision = rendezvous.revision();
  for (int i = 0; i < 49; ++i) {
    now += 100ms;
    rendezvous.step(KeptAlive{{8}}, now);
    rendezvous.step(KeptAlive{{9}}, now);
    shown();
  }
  CHECK(rendezvous.revision() == revision);
  now += 100ms;
  shown();
  CHECK(rendezvous.revision() == revision + 1);
  CHECK(*shown().last_heartbeats.find({"m", 1, 0}) == wall());
}

TEST_CASE("c10d door: rank 0 keeps its rank, whichever node completes the round",
          "[unit][rendezvous]") {
  DoorTest test{std::nullopt};
  auto b = test.torch("b", 1, 2);
  auto a = test.torch("a", 1, 2);
  test.does(b, 1, Action::AddToParticipants);
  test.now += 31s;
  test.does(b, 1, Action::KeepAlive);
  test.does(b, 1, Action::MarkComplete);
  REQUIRE(test.shown().complete);
  test.does(a, 2, Action::AddToWaitList);
  test.does(b, 1, Action::RemoveFromParticipants);
  REQUIRE(test.shown().round == 1);
  test.does(b, 1, Action::AddToParticipants);
  // torchrun would sort by name and make "a" rank 0: then the nodes would meet at two addresses.
  CHECK(test.does(a, 2, Action::AddToParticipants) == ProposalVerdict::Merged);
  REQUIRE(test.shown().complete);
  CHECK(*test.shown().participants.find(b.name()) == 0);
}

TEST_CASE_METHOD(DoorTest, "c10d door: clocks that are 20 s apart remove no node",
                 "[unit][rendezvous]") {
  auto a = torch("a");
  auto b = torch("b");
  const auto at = [&](Duration skew) { return WallTime{wall().microseconds + skew / 1us}; };
  // The clock of "a" is 20 s ahead: "a" takes "b" for dead, and drops it when it joins.
  b.apply(Action::AddToParticipants, at(-20s));
  rendezvous.propose({{2}, {}, b.state}, now, wall());
  a.state = shown();
  a.sanitize(at(20s));
  CHECK(a.state.participants.empty());
  const RendezvousState seen = shown();
  a.apply(Action::AddToParticipants, at(20s));
  const auto answer = rendezvous.propose({{1}, seen, a.state}, now, wall());
  CHECK(answer.verdict == ProposalVerdict::Merged);
  CHECK(std::holds_alternative<ClockSkewSeen>(answer.actions.at(0)));
  for (const Duration skew : {-20s, 0s, 20s}) {
    a.state = shown();
    a.sanitize(at(skew));
    CHECK(a.state.complete);
    CHECK(a.state.participants.size() == 2);
  }
}

// Seed 3211 of the simulation: torchrun nodes whose clocks are 4.5 s apart.
TEST_CASE("c10d door: when the fastest clock has gone, the slower ones do not look dead",
          "[unit][rendezvous]") {
  DoorTest test{std::nullopt};
  const auto writes = [&](TorchModel& node, std::uint32_t client, Action action, Duration skew) {
    const RendezvousState seen = test.shown();
    node.state = seen;
    node.apply(action, {test.wall().microseconds + skew / 1us});
    test.result = test.rendezvous.propose({{client}, seen, node.state}, test.now, test.wall());
    return test.result.verdict;
  };
  auto slow = test.torch("slow", 1, 2);
  auto other = test.torch("other", 1, 2);
  auto fast = test.torch("fast", 1, 2);
  CHECK(writes(slow, 1, Action::AddToParticipants, -1500ms) == ProposalVerdict::Accepted);
  CHECK(writes(other, 2, Action::AddToParticipants, 1s) == ProposalVerdict::Accepted);
  REQUIRE(test.shown().complete);
  writes(fast, 3, Action::AddToRedundancyList, 3s);
  // The view shows the slow node's heartbeat by the fast clock. So the slow node never thinks that
  // its next heartbeat is due.
  const auto alive_for = [&](Duration time, bool with_fast) {
    for (Duration passed{}; passed < time; passed += 1s) {
      test.now += 1s;
      for (const std::uint32_t client : {1, 2})
        test.rendezvous.note_request({client}, test.now);
      if (passed % 5s == 0s) writes(other, 2, Action::KeepAlive, 1s);
      if (passed % 5s == 0s && with_fast) writes(fast, 3, Action::KeepAlive, 3s);
    }
  };
  alive_for(40s, true);
  CHECK_FALSE(test.rendezvous.step(ConnectionLost{{3}}, test.now).empty());
  writes(other, 2, Action::KeepAlive, 1s);
  const auto seen_by = [&](TorchModel& node, Duration skew) {
    node.state = test.shown();
    node.sanitize({test.wall().microseconds + skew / 1us});
    return node.state.participants.size();
  };
  CHECK(seen_by(other, 1s) == 2);
  CHECK(seen_by(slow, -1500ms) == 2);
  // The node writes its own heartbeat again when an interval has passed.
  test.now += 5s;
  CHECK(slow.decide(TorchModel::Operation::KeepAlive, test.now, test.now + 5s,
                    {test.wall().microseconds - 1'500'000}) == Action::KeepAlive);
  CHECK(writes(slow, 1, Action::KeepAlive, -1500ms) == ProposalVerdict::Accepted);
}

// Seed 15978 of the simulation: torchrun nodes whose clocks are far apart, at a host without
// settings.
TEST_CASE("c10d door: wrong clocks do not put too many nodes into a round", "[unit][rendezvous]") {
  DoorTest test{std::nullopt};
  auto slow = test.torch("slow", 2, 3);
  auto other = test.torch("other", 2, 3);
  auto fast = test.torch("fast", 2, 3);
  const auto joins = [&](TorchModel& node, std::uint32_t client, Duration skew) {
    const WallTime wall{test.wall().microseconds + skew / 1us};
    const RendezvousState seen = test.shown();
    node.state = seen;
    node.sanitize(wall);
    node.apply(Action::AddToParticipants, wall);
    test.result = test.rendezvous.propose({{client}, seen, node.state}, test.now, test.wall());
    return test.result.verdict;
  };
  CHECK(joins(slow, 1, -1900ms) == ProposalVerdict::Accepted);
  CHECK(joins(other, 2, 0s) == ProposalVerdict::Accepted);
  test.now += 4900ms;
  // To "fast", "slow" looks dead: "fast" would become the second of three, and the round would stay
  // open.
  CHECK(joins(fast, 3, 12s) == ProposalVerdict::Lost);
  CHECK(test.shown().participants.size() == 2);
  CHECK(joins(fast, 3, 12s) != ProposalVerdict::Lost);
  CHECK(test.shown().complete);
  CHECK(test.shown().participants.size() == 3);
}

// Seed 18935 of the simulation.
TEST_CASE_METHOD(DoorTest,
                 "c10d door: a run that is closed while rank 0 prepares still has its round",
                 "[unit][rendezvous]") {
  auto a = torch("a");
  joins(9, "m", {.min_nodes = 2, .max_nodes = 2});
  does(a, 1, Action::AddToParticipants);
  REQUIRE(std::holds_alternative<PrepareStore>(result.actions.at(0)));
  does(a, 1, Action::MarkClosed);
  CHECK(result.actions.empty());
  const auto told = rendezvous.step(StoreReady{{9}, 0, "m", 1}, now);
  REQUIRE(told.size() == 2);
  CHECK(std::holds_alternative<RoundComplete>(told[0]));
  CHECK(std::holds_alternative<RunClosed>(told[1]));
}

TEST_CASE_METHOD(DoorTest, "c10d door: a muster node's name cannot be used by others",
                 "[unit][rendezvous]") {
  joins(9, "m", {.min_nodes = 2, .max_nodes = 2});
  TorchModel thief({"m", 1, 0}, {.min_nodes = 2, .max_nodes = 2});
  const RendezvousState seen = shown();
  now += 1s;
  CHECK(does(thief, 1, Action::KeepAlive, seen) == ProposalVerdict::Refused);
  // One proposal cannot change two nodes.
  RendezvousState wild = shown();
  wild.participants.set({"x", 1, 0}, 0);
  wild.last_heartbeats.set({"x", 1, 0}, wall());
  wild.participants.set({"y", 1, 0}, 0);
  wild.last_heartbeats.set({"y", 1, 0}, wall());
  CHECK(rendezvous.propose({{1}, shown(), wild}, now, wall()).verdict == ProposalVerdict::Refused);
}

TEST_CASE_METHOD(DoorTest, "c10d door: a node that waits where all places are taken is refused",
                 "[unit][rendezvous]") {
  auto a = torch("a");
  auto b = torch("b");
  auto c = torch("c", 2, 3);  // It has another --nnodes.
  does(a, 1, Action::AddToParticipants);
  does(b, 2, Action::AddToParticipants);
  REQUIRE(shown().complete);
  CHECK(does(c, 3, Action::AddToWaitList) == ProposalVerdict::Refused);
  CHECK(result.refusal.find("c_7_0 has a larger maximum than --nnodes=2:2") != std::string::npos);
  CHECK(shown().wait_list.empty());
  // A node that takes one of the others for dead is not refused, whether it is right or not.
  now += 16s;
  c.state = shown();
  const RendezvousState seen = shown();
  c.state.participants.erase(b.name());
  c.state.last_heartbeats.erase(b.name());
  c.apply(Action::AddToWaitList, wall());
  CHECK(rendezvous.propose({{3}, seen, c.state}, now, wall()).verdict != ProposalVerdict::Refused);
}

// Seed 83 of the shapes simulation: all nodes of the previous round had fallen silent, so no round
// could begin for five minutes. Two torchrun nodes wrote a complete round again and again without a
// pause.
TEST_CASE("c10d door: a delayed round does not show an expired last call", "[unit][rendezvous]") {
  const RunSettings run{.min_nodes = 2, .max_nodes = 3};
  DoorTest test(run);
  auto a = test.torch("a", 2, 3);
  NodeJoined absent{
      .from = {8}, .name = {"l", 1, 0}, .role = "default", .run = run, .muster_version = "1"};
  absent.instance = "of l";
  absent.resumes = true;
  test.rendezvous.step(absent, test.now);
  test.does(a, 1, Action::AddToParticipants);
  REQUIRE(test.shown().deadline);
  test.now += 29s;
  test.does(a, 1, Action::KeepAlive);
  test.rendezvous.step(KeptAlive{{8}}, test.now);
  test.now += 2s;
  test.rendezvous.step(ConnectionLost{{8}}, test.now);  // The node has half a second to resume.
  const auto decides = [&] {
    a.state = test.shown();
    return a.decide(TorchModel::Operation::Join, test.now, test.now + 600s, test.wall());
  };
  if (decides() == Action::MarkComplete) test.does(a, 1, Action::MarkComplete);
  REQUIRE_FALSE(test.shown().complete);
  CHECK(decides() == Action::Sync);
  // The host completes the round by itself when the node has come back.
  absent.from = {9};
  test.rendezvous.step(absent, test.now);
  CHECK(test.shown().complete);
}

// Under torchrun, a node on the wait list stays there in a full round, and all others restart.
TEST_CASE("c10d door: no node stays on the wait list when all places are taken",
          "[unit][rendezvous]") {
  const RunSettings run{.min_nodes = 2, .max_nodes = 2, .max_restarts = 3};
  DoorTest test(run);
  auto a = test.torch("a");
  auto b = test.torch("b");
  test.joins(9, "m", run);
  test.does(a, 1, Action::AddToParticipants);
  test.rendezvous.step(StoreReady{{9}, 0, "m", 1}, test.now);
  test.does(b, 2, Action::AddToRedundancyList);
  test.rendezvous.step(WorkersFailed{{9}, 0, "rank 0 exited with 1"}, test.now);
  // A place seems to be free: b goes onto the wait list for it, but a is faster.
  test.does(b, 2, Action::RemoveFromRedundancyList);
  test.does(b, 2, Action::AddToWaitList);
  REQUIRE(test.shown().wait_list.contains(b.name()));
  test.does(a, 1, Action::RemoveFromParticipants);
  NodeJoined again{
      .from = {9}, .name = {"m", 1, 0}, .role = "default", .run = run, .muster_version = "1"};
  again.last_round = 0;
  test.rendezvous.step(again, test.now);
  test.does(a, 1, Action::AddToParticipants);
  REQUIRE(test.shown().complete);
  REQUIRE(test.shown().round == 1);
  CHECK(test.shown().wait_list.empty());
  CHECK(test.shown().redundancy_list.contains(b.name()));
  // b waits on the redundancy list and writes keep-alives.
  b.state = test.shown();
  CHECK(b.decide(TorchModel::Operation::Join, test.now, test.now + 600s, test.wall()) ==
        Action::Sync);
}

// Seed 489 of the shapes simulation.
TEST_CASE("c10d door: no node stays on the wait list of a full round of torchrun nodes alone",
          "[unit][rendezvous]") {
  DoorTest test(std::nullopt);
  auto a = test.torch("a");
  auto b = test.torch("b");
  auto c = test.torch("c");
  test.does(a, 1, Action::AddToParticipants);
  test.does(b, 2, Action::AddToParticipants);
  test.does(c, 3, Action::AddToRedundancyList);
  test.does(a, 1, Action::RemoveFromParticipants);
  test.does(c, 3, Action::RemoveFromRedundancyList);
  test.does(c, 3, Action::AddToWaitList);
  test.does(b, 2, Action::RemoveFromParticipants);
  REQUIRE(test.shown().wait_list.contains(c.name()));
  test.does(b, 2, Action::AddToParticipants);
  CHECK(test.does(a, 1, Action::AddToParticipants) == ProposalVerdict::Merged);
  REQUIRE(test.shown().complete);
  CHECK(test.shown().wait_list.empty());
  CHECK(test.shown().redundancy_list.contains(c.name()));
}

TEST_CASE("c10d door: a restart ends when the node that waits for it is gone",
          "[unit][rendezvous]") {
  const RunSettings run{.min_nodes = 2, .max_nodes = 2};
  DoorTest test(run);
  auto a = test.torch("a");
  test.joins(9, "m", run);
  test.does(a, 1, Action::AddToParticipants);
  test.rendezvous.step(StoreReady{{9}, 0, "m", 1}, test.now);
  test.rendezvous.step(RestartRequested{{9}, "why not"}, test.now);
  CHECK(test.rendezvous.phase() == Rendezvous::Phase::Draining);
  // The only node that waits for the torchrun node is gone before that node has read the state.
  test.rendezvous.step(ConnectionLost{{9}}, test.now);
  CHECK(test.rendezvous.phase() == Rendezvous::Phase::Running);
  // So a newcomer can make the torchrun node restart.
  test.joins(10, "n", run);
  CHECK(test.shown().wait_list.contains({"n", 1, 0}));
}

TEST_CASE("c10d door: an attribute that muster does not know is kept", "[unit][rendezvous]") {
  DoorTest test;
  auto a = test.torch("a");
  RendezvousState seen = test.shown();
  a.state = seen;
  a.state.foreign = {{"x_other", "\x80\x04N."}};
  a.apply(Action::AddToParticipants, test.wall());
  test.rendezvous.propose({{1}, seen, a.state}, test.now, test.wall());
  auto b = test.torch("b");
  test.does(b, 2, Action::AddToParticipants);
  REQUIRE(test.shown().foreign.size() == 1);
  CHECK(test.shown().foreign[0].name == "x_other");
}

}  // namespace
}  // namespace muster

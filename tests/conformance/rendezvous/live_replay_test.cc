// Replays two recorded torchrun jobs (golden/live_*.jsonl): to Rendezvous, as the host of those
// nodes, and to C10dParticipant, in the place of each of those nodes.

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/host/rendezvous.h"
#include "rendezvous/torchrun/c10d_participant.h"
#include "rendezvous/torchrun/rdzv_operation.h"
#include "rendezvous/torchrun/state_codec.h"
#include "tests/support/state_twin.h"

namespace muster {
namespace {

using Kind = StateOperation::Kind;

const std::filesystem::path kGoldens = std::filesystem::path(MUSTER_RENDEZVOUS_GOLDENS) / "golden";
constexpr RunSettings kRun{.min_nodes = 2, .max_nodes = 2, .max_restarts = 1};

/// One recorded compare-and-set that was successful.
struct Write {
  Instant at;
  WallTime wall;
  RendezvousState before;
  RendezvousState after;
  StateOperation operation;
};

Instant seconds_after_start(double seconds) {
  return Instant{} + std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

/// The recorded writes. Each must be one operation of one node, as the rules require.
std::vector<Write> recorded(const char* name) {
  std::ifstream file(kGoldens / name);
  REQUIRE(file);
  std::vector<Write> writes;
  RendezvousState before;
  // The recorder polled every 2 ms. So the first heartbeat gives its clock with this accuracy.
  std::optional<std::int64_t> start_us;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    const std::string text = record["b64"];
    const auto state = decode_state(text);
    REQUIRE(state.has_value());
    if (!state->has_value()) continue;  // No node has joined yet.
    const auto again = decode_state(encode_state(**state));
    REQUIRE(again.has_value());
    CHECK(**again == **state);
    const double seconds = record["t"];
    INFO(name << " at " << seconds << " s");
    const auto operation = derive_operation(before, **state, std::nullopt);
    REQUIRE(operation.has_value());
    const auto us = static_cast<std::int64_t>(seconds * 1e6);
    if (!start_us) start_us = operation->heartbeat.value().microseconds - us;
    writes.push_back({.at = seconds_after_start(seconds),
                      .wall = {*start_us + us},
                      .before = before,
                      .after = **state,
                      .operation = *operation});
    before = **state;
  }
  return writes;
}

std::vector<Kind> kinds(const std::vector<Write>& writes) {
  std::vector<Kind> found;
  for (const Write& write : writes)
    if (write.operation.kind != Kind::KeepAlive) found.push_back(write.operation.kind);
  return found;
}

/// The connection number is the last number of the node's address. 127.0.0.2 is the first agent.
ConnectionId connection_of(const NodeName& node) {
  return {static_cast<std::uint32_t>(node.addr.back() - '0')};
}

void host(const char* name, std::optional<RunSettings> run) {
  INFO(name << (run ? ", limits known" : ", limits unknown"));
  Rendezvous rendezvous(RendezvousSetup{.run = run});
  for (const Write& write : recorded(name)) {
    while (rendezvous.next_deadline() && *rendezvous.next_deadline() <= write.at)
      rendezvous.step(RendezvousTimePassed{}, *rendezvous.next_deadline());
    const auto& node = write.operation.node;
    const StateProposal proposal{node ? connection_of(*node) : ConnectionId{9}, write.before,
                                 write.after};
    const ProposalResult result = rendezvous.propose(proposal, write.at, write.wall);
    INFO("at " << (write.at.time_since_epoch() / std::chrono::milliseconds(1)) << " ms");
    CHECK(result.verdict == ProposalVerdict::Accepted);
    const RendezvousState& shown = rendezvous.render(write.at, write.wall);
    INFO(testing::twin_of(shown));
    CHECK(same_content(shown, write.after));
    const auto text = encode_state(shown);
    const auto read = decode_state(text);
    REQUIRE(read.has_value());
    CHECK(same_content(**read, write.after));
  }
}

/// A muster node in the place of each agent.
class Replay {
 public:
  /// The step that a muster node takes in the place of the node of this write.
  C10dStep takes(const Write& write) {
    // The state does not say which node closed it: the first agent is assumed.
    const NodeName name = write.operation.node ? *write.operation.node : nodes_.begin()->first;
    const auto [entry, is_new] = nodes_.try_emplace(
        name, C10dParticipant(name, RendezvousSettings{.run_id = "live", .run = kRun}));
    C10dParticipant& node = entry->second;
    // A worker has failed, or a node waits: this node wants the next round.
    if (is_new || write.operation.kind == Kind::RemoveFromParticipants) node.join(write.at);
    if (write.operation.kind == Kind::MarkClosed) node.close(write.at);
    return node.step(write.before, write.at, write.wall);
  }
  /// All nodes read the new state. Their steps are ignored: they may want to write at once.
  void everybody_sees(const Write& write) {
    for (auto& [name, node] : nodes_)
      node.step(write.after, write.at, write.wall);
  }

 private:
  std::map<NodeName, C10dParticipant> nodes_;
};

/// `state` with the heartbeat that the recorded node wrote, which comes from that node's own clock.
RendezvousState with_heartbeat_of(RendezvousState state, const Write& write) {
  const auto& node = write.operation.node;
  const bool beats = node && state.last_heartbeats.contains(*node);
  if (beats && write.after.last_heartbeats.contains(*node))
    state.last_heartbeats.set(*node, *write.after.last_heartbeats.find(*node));
  return state;
}

void join_in(const char* name) {
  INFO(name);
  Replay replay;
  for (const Write& write : recorded(name)) {
    INFO("at " << (write.at.time_since_epoch() / std::chrono::milliseconds(1)) << " ms");
    const C10dStep step = replay.takes(write);
    replay.everybody_sees(write);
    const auto* ours = std::get_if<WriteState>(&step);
    REQUIRE(ours != nullptr);
    const auto operation = derive_operation(write.before, ours->state, std::nullopt);
    REQUIRE(operation.has_value());
    CHECK(operation->kind == write.operation.kind);
    // torch's agent was silent for 15 s in its exit barrier. When it closes the run, it takes
    // itself for dead and removes itself, too.
    if (operation->kind == Kind::MarkClosed && write.after.participants.empty()) continue;
    CHECK(operation->node == write.operation.node);
    CHECK(testing::twin_of(with_heartbeat_of(ours->state, write)) == testing::twin_of(write.after));
  }
}

TEST_CASE("recorded jobs: their events are those that the README lists",
          "[conformance][rendezvous]") {
  using enum StateOperation::Kind;
  const auto restart = recorded("live_restart.jsonl");
  CHECK(restart.size() == 14);
  CHECK(kinds(restart) == std::vector{AddToParticipants, AddToParticipants, RemoveFromParticipants,
                                      AddToWaitList, RemoveFromParticipants, AddToParticipants,
                                      AddToParticipants, MarkClosed});
  CHECK(restart.back().after.round == 1);
  CHECK(restart.back().after.participants.size() == 2);

  const auto spare = recorded("live_spare.jsonl");
  CHECK(spare.size() == 16);
  CHECK(kinds(spare) == std::vector{AddToParticipants, AddToParticipants, AddToRedundancyList,
                                    RemoveFromParticipants, AddToWaitList, RemoveFromRedundancyList,
                                    AddToWaitList, AddToParticipants, AddToParticipants,
                                    MarkClosed});
  // F3: the second agent writes no heartbeat in its exit barrier, and round 1 forms without it.
  const auto joined = std::find_if(spare.begin(), spare.end(),
                                   [](const Write& write) { return write.after.round == 1; });
  REQUIRE(joined != spare.end());
  REQUIRE(joined->operation.dropped.size() == 1);
  CHECK(joined->operation.dropped[0].addr == "127.0.0.3");
  CHECK(joined->operation.node->addr == "127.0.0.4");
  // F1: no node reached the end of round 1.
  CHECK(spare.back().after.participants.empty());
}

TEST_CASE("recorded jobs: Rendezvous in place of the store shows the recorded states",
          "[conformance][rendezvous]") {
  for (const char* name : {"live_restart.jsonl", "live_spare.jsonl"}) {
    host(name, std::nullopt);
    host(name, kRun);
  }
}

TEST_CASE("recorded jobs: C10dParticipant in place of each agent writes the recorded states",
          "[conformance][rendezvous]") {
  join_in("live_restart.jsonl");
  join_in("live_spare.jsonl");
}

}  // namespace
}  // namespace muster

// A run as people see it: a copy of what its rendezvous knows, made when somebody asks.
//
// Plain values that may go to another thread. Every list is bounded. The texts of it:
// wire/run_view_json.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/kept_out.h"
#include "rendezvous/core/node_report.h"
#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/run_history.h"
#include "rendezvous/core/time.h"

namespace muster {

/// Runs in one RunsView, nodes in one RunView. Whoever wants more asks again, with an offset.
inline constexpr std::size_t kMaxViewedRuns = 1'000;
inline constexpr std::size_t kMaxViewedNodes = 4'096;
/// Missing nodes in one RunView.
inline constexpr std::size_t kMaxViewedMissing = 64;

enum class RunStanding {
  Empty,       // Nobody has joined, or nobody is in it any more.
  Gathering,   // Nodes join the first round.
  Recovering,  // The nodes of a round that an earlier musterd made are coming back.
  Preparing,   // The round has its nodes; rank 0 empties the workers' store.
  Running,     // Every node of the round knows its rank.
  Restarting,  // A round has ended, and the next one is not complete yet.
  Closed,      // A torchrun node has closed it. Nobody may join any more.
  Succeeded,
  Failed,
};
inline constexpr std::size_t kRunStates = 9;
/// "running": lives for ever.
std::string_view to_string(RunStanding state);

enum class NodeState {
  Joined,      // In a round that is not complete yet.
  Preparing,   // In a complete round whose store is not ready yet.
  Working,     // In a round, and its workers run.
  Finished,    // Its workers have ended well.
  Absent,      // It has lost its connection, and has a moment to come back.
  Restarting,  // It was told to stop its workers and to join again.
  Waiting,     // It wants the next round, or is held back because it was lost so often.
  Spare,       // No place for it, or marked as a spare.
  Resuming,    // In a round that an earlier musterd made.
  KeptOut,     // An operator keeps it out of the rounds.
};
inline constexpr std::size_t kNodeStates = 10;
std::string_view to_string(NodeState state);

/// What a node has reported last, and when it came.
struct ReportView {
  NodeReport report;
  Instant at{};
};

struct NodeView {
  NodeName name;
  NodeState state = NodeState::Joined;
  bool native = false;             // A muster node; false: a torchrun node.
  std::optional<int> group_rank;   // In the newest complete round.
  std::optional<int> first_rank;   // The global rank of its first worker, if it is known.
  std::optional<int> local_world;  // Its workers. Nothing: a torchrun node tells only its store.
  std::string role;
  std::optional<Duration> silent;  // Since it was last heard. Nothing: nobody waits to hear it.
  std::optional<Duration> absent;  // Since its connection was lost.
  bool spare = false;              // Marked as one.
  /// An operator has drained or excluded it; it may still be in a round.
  std::optional<KeptOutHow> kept_out = {};
  Strikes strikes = {};                           // Of its host.
  std::shared_ptr<const ReportView> report = {};  // Null: it reports nothing.
};

/// A node that was in the newest complete round, and is not in the next one yet.
struct MissingNode {
  NodeName name;
  std::optional<int> rank;        // That it had.
  bool expected = false;          // It is alive and about to come back; false: it is gone.
  std::string why;                // It is gone; empty if it is expected.
  std::optional<Duration> since;  // It is gone.
};

struct RunSummary {
  std::string id;
  RunStanding state = RunStanding::Empty;
  std::string reason;  // Who has joined, who is missing, what is waited for.
  std::int64_t round = 0;
  std::int64_t generation = 0;
  int restarts_used = 0;
  // Nothing while only torchrun nodes are in it: they do not tell.
  std::optional<int> restarts_allowed;
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;
  std::size_t nodes = 0;  // Of any state.
  std::size_t nodes_in_round = 0;
  std::optional<std::uint64_t> last_event;  // The number of the newest one.
  std::optional<RunEvent> first_failure;
};

struct RunView {
  RunSummary summary;
  std::vector<NodeView> nodes;  // From `offset` on, in the order in which they came.
  std::size_t offset = 0;       // As it was asked for.
  std::vector<MissingNode> missing;
  std::size_t missing_total = 0;  // More than `missing` has, if there are too many.
  /// Nodes that must still come before the round can be complete, whoever they are.
  std::size_t lacking = 0;
  std::optional<Duration> last_call;  // It ends in so long.
  std::vector<RunEvent> events;       // The newest ones, oldest first.
  std::optional<RunEnded> outcome;
  std::vector<KeptOutEntry> kept_out;  // By an operator; also who is not in the run now.
  std::vector<HostStrikes> strikes;    // The host that was struck last comes last.
  /// What the node of the first failure has told about it.
  std::optional<FailureReport> first_failure_report;
  Instant now{};  // When this was so.
  WallTime wall;
};

struct RunsView {
  std::vector<RunSummary> runs;  // From `offset` on, by id.
  std::size_t offset = 0;
  std::size_t total = 0;
  Instant now{};
  WallTime wall;
};

/// Figures of a whole server.
struct RunsFigures {
  std::array<std::size_t, kRunStates> runs{};
  std::array<std::size_t, kNodeStates> nodes{};
  std::optional<Duration> longest_silent;  // Of all nodes that are waited for.
  RunCounters counters;
  /// For how long a change has waited to be durable. Nothing: everything is, or nothing is
  /// recorded.
  std::optional<Duration> unrecorded;
  bool state_problem = false;  // Changes cannot be made durable now.
  /// Whether this host leads those that share its etcd. Nothing: it shares none.
  std::optional<bool> leads;
};

}  // namespace muster

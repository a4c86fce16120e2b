// A run as people see it: a copy of the rendezvous' data, made on request.
//
// Plain values, which may be passed to another thread. Every list is bounded. The JSON of the views
// is in rendezvous/http/run_view_json.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/kept_out.h"
#include "rendezvous/rounds/node_name.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/restart_ledger.h"
#include "rendezvous/rounds/run_history.h"
#include "rendezvous/rounds/run_record.h"
#include "rendezvous/rounds/step_rates.h"

namespace muster {

/// Runs in one RunsView, nodes in one RunView. For more, the caller asks again with an offset.
inline constexpr std::size_t kMaxViewedRuns = 1'000;
inline constexpr std::size_t kMaxViewedNodes = 4'096;
/// Missing nodes in one RunView.
inline constexpr std::size_t kMaxViewedMissing = 64;
/// Doomed nodes, and nodes that have not answered a notice, in one NoticeView.
inline constexpr std::size_t kMaxViewedNotice = 64;

enum class RunStanding {
  Empty,       // No node has joined, or no node is in the run any more.
  Gathering,   // Nodes join the first round.
  Recovering,  // The nodes of a round that an earlier musterd made are resuming.
  Preparing,   // The round has its nodes; rank 0 empties the workers' store.
  Running,     // Every node of the round knows its rank.
  Restarting,  // A round has ended, and the next one is not complete yet.
  Closed,      // A torchrun node has closed the run. No node may join any more.
  Succeeded,
  Failed,
  Preempted,  // Stopped because nodes of it will go.
};
inline constexpr std::size_t kRunStates = 10;
/// "running". The text is static.
std::string_view to_string(RunStanding state);

enum class NodeState {
  Joined,      // In a round that is not complete yet.
  Preparing,   // In a complete round whose store is not ready yet.
  Working,     // In a round, and its workers run.
  Finished,    // Its workers have succeeded.
  Absent,      // Its connection was closed, and it has a short time to resume.
  Restarting,  // It was told to stop its workers and to join again.
  Waiting,     // It wants the next round, or is held back because it was lost so often.
  Spare,       // On the redundancy list, or marked as a spare.
  Resuming,    // In a round that an earlier musterd made.
  KeptOut,     // An operator keeps it out of the rounds, or it will go.
};
inline constexpr std::size_t kNodeStates = 10;
std::string_view to_string(NodeState state);

/// The last report of a node, and its time of arrival.
struct ReportView {
  NodeReport report;
  Instant at{};
};

/// A node will go.
struct DoomView {
  Duration left{};               // Zero: the deadline has passed.
  std::int64_t deadline_ms = 0;  // Since 1970.
  std::string reason;
};

/// The notice that the nodes of the running round have got.
struct NoticeView {
  DoomView first;     // The earliest deadline.
  bool stops = true;  // The run ends then. False: the round restarts without the doomed nodes.
  std::vector<NodeName> doomed;
  std::size_t doomed_total = 0;  // May be larger than `doomed`, which is bounded.
  std::size_t saved = 0;         // Nodes that have answered, or have finished.
  std::vector<NodeName> silent;  // Nodes that have not answered.
  std::size_t silent_total = 0;
};

struct NodeView {
  NodeName name;
  NodeState state = NodeState::Joined;
  bool native = false;            // A muster node; false: a torchrun node.
  std::optional<int> group_rank;  // In the newest complete round.
  std::optional<int> first_rank;  // The global rank of its first worker, if it is known.
  /// The number of its workers. Empty for a torchrun node, which writes it only to the store.
  std::optional<int> local_world;
  std::string role;
  std::optional<Duration> silent;  // Since its last sign of life. Empty: the node is not watched.
  std::optional<Duration> absent;  // Since its connection was lost.
  bool spare = false;              // Marked as a spare.
  /// An operator has drained or excluded it; it may still be in a round.
  std::optional<KeptOutHow> kept_out = {};
  std::optional<DoomView> notice = {};  // The node will go.
  /// Whether all its workers have answered the notice of the running round. Empty: there is none,
  /// or the node is not in the round.
  std::optional<bool> saved = {};
  Strikes strikes = {};                           // Of its host.
  std::shared_ptr<const ReportView> report = {};  // Null: no report.
};

/// A node that was in the newest complete round, and is not in the next one yet.
struct MissingNode {
  NodeName name;
  std::optional<int> rank;        // Its group rank in that round.
  bool expected = false;          // It is alive and about to come back; false: it is gone.
  std::string why;                // Why it is gone; empty if it is expected.
  std::optional<Duration> since;  // Since when it is gone.
};

struct RunSummary {
  std::string id;
  RunStanding state = RunStanding::Empty;
  std::string reason;  // Which nodes have joined or are missing, and what the run waits for.
  std::int64_t round = 0;
  std::int64_t generation = 0;
  int restarts_used = 0;
  // Empty while only torchrun nodes are in the run: they do not send these numbers.
  std::optional<int> restarts_allowed;
  /// The budgets of --restart-policy. Empty: the run has none, or only torchrun nodes.
  std::optional<RestartBudgets> budgets = {};
  RestartCosts costs = {};  // What has been paid.
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;
  std::size_t nodes = 0;  // In any state.
  std::size_t nodes_in_round = 0;
  std::optional<std::uint64_t> last_event;  // The number of the newest event.
  std::optional<RunEvent> first_failure;
  std::optional<Duration> ended_before = {};  // How long ago it ended. Empty: it has not.
  /// How long ago it began. Empty: an older musterd has recorded it.
  std::optional<Duration> began_before = {};
  /// How long ago the round was complete whose workers run now. Empty: none runs, or this host did
  /// not see it.
  std::optional<Duration> up_for = {};
};

struct RunView {
  RunSummary summary;
  std::vector<NodeView> nodes;  // From `offset` on, in the order in which they came.
  std::size_t offset = 0;       // As requested.
  std::vector<MissingNode> missing;
  std::size_t missing_total = 0;  // May be larger than `missing`, which is bounded.
  /// The number of further nodes without which the round cannot be complete.
  std::size_t lacking = 0;
  std::optional<Duration> last_call;  // The remaining time of the last call.
  std::vector<RunEvent> events;       // The newest ones, oldest first.
  std::optional<RunEnded> outcome;
  std::optional<NoticeView> notice = {};
  std::vector<KeptOutEntry> kept_out;  // By an operator; also nodes that are not in the run now.
  std::vector<HostStrikes> strikes;    // The host with the newest strike comes last.
  /// The first failure, as its node has reported it.
  std::optional<FailureReport> first_failure_report;
  std::optional<PreviousRun> previous;  // The ended run of this id before this one.
  StepSeries steps;                     // How fast its workers take their steps.
  Instant now{};                        // The time of this view.
  WallTime wall;
};

struct RunsView {
  std::vector<RunSummary> runs;  // From `offset` on, sorted by id.
  std::size_t offset = 0;
  std::size_t total = 0;
  Instant now{};
  WallTime wall;
};

/// Figures of a whole server.
struct RunsFigures {
  std::array<std::size_t, kRunStates> runs{};
  std::array<std::size_t, kNodeStates> nodes{};
  std::optional<Duration> longest_silent;  // The longest silence of all watched nodes.
  RunCounters counters;
  /// The time for which the oldest change has waited to be durable. Empty: all changes are durable,
  /// or this host records nothing.
  std::optional<Duration> unrecorded;
  bool state_problem = false;  // Changes cannot be made durable now.
  /// Whether this host is the leader of the musterds that share its etcd. Empty: there is no etcd.
  std::optional<bool> leads;
};

}  // namespace muster

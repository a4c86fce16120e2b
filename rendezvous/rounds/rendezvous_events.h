// The events and actions of a rendezvous: the native door's messages as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "rendezvous/rounds/node_name.h"
#include "rendezvous/rounds/notice.h"
#include "rendezvous/rounds/round_ranks.h"
#include "rendezvous/rounds/settings.h"

namespace muster {

/// Increased when an older muster cannot understand the messages of a newer one.
inline constexpr int kNativeProtocolVersion = 1;
/// No generation is higher: messages and records with a higher one are not valid.
inline constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 52;
/// A higher generation, or number of a round, from a node is ignored: the numbers above it must
/// suffice for the whole run.
inline constexpr std::int64_t kMaxReportedGeneration = kMaxGeneration / 2;
/// The same for a host with a clock: so far above the clock in milliseconds. Rounds are slower than
/// that clock. So if a wrong number was believed, later hosts believe the numbers of the rounds
/// that came after it, too.
inline constexpr std::int64_t kMaxGenerationsAhead = std::int64_t{1} << 45;

/// The address of the store through which the workers of a round meet.
struct StoreAddress {
  std::string addr;
  std::uint16_t port = 0;
  bool operator==(const StoreAddress&) const = default;
};

// --- events: a connection identifies the node ----------------------------------------------------

/// The node wants to be in the next round. It has stopped its workers, if it had any.
struct NodeJoined {
  ConnectionId from;
  NodeName name;
  /// A random number that an agent makes once. Agents in containers that share the host's network
  /// may have the same address and pid: the instance tells them apart, and tells a node that has
  /// come back from a new one.
  std::string instance;
  int local_world_size = 1;
  std::string role;
  RunSettings run;
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  /// The newest round of which the node has received RoundComplete or RestartRound; -1: none. Tells
  /// a join that answers a restart from a join that was sent before the restart.
  std::int64_t last_round = -1;
  std::optional<int> preferred_rank;
  bool spare = false;
  bool hosts_rendezvous = false;
  /// RoundComplete::life of `last_round`. Round numbers of another life mean nothing to this host.
  std::int64_t life = 0;
  /// The highest generation that this node has received; 0: none.
  std::int64_t generation = 0;
  /// The highest restart count of the job that this node has received. A host that could not record
  /// the count gets it from here.
  int restart_count = 0;
  /// The node connects again by itself after a break and sends NodeResumed.
  bool resumes = false;
  /// The longest lease by which the nodes of the node's round may wait before they stop their
  /// workers. Only in NodeResumed. Zero: an older node.
  Duration lease{};
  /// Something between the node and the host has its own connections with both, such as a proxy, a
  /// tunnel or a load balancer. That its connection closes says nothing about the node.
  bool proxied = false;
  /// A digest of the workers' command. Nodes of one job and role have the same. An older muster
  /// does not send it.
  std::string command;
  /// The node understands PreemptionNotice. Not sent: its hello says so.
  bool takes_notices = false;
  /// The node watches a file that tells the progress of its workers (--progress-file).
  bool has_progress_file = false;
};
/// The node has a new connection and is still in its round: sent instead of a join.
struct NodeResumed {
  enum class State {
    Running,   // Its workers run.
    Stopped,   // Its workers do not run any more: they have failed, or were stopped.
    Finished,  // Its workers have succeeded.
  };
  ConnectionId from;
  /// The node's last join: a host that has forgotten everything registers the node with it.
  /// `join.last_round`, `join.life` and `join.generation` are those of the round.
  NodeJoined join;
  State state = State::Running;
  /// The fields of the round's RoundComplete.
  int group_rank = 0;
  int group_world_size = 1;
  int restart_count = 0;
  std::optional<WorkerRanks> workers;
  std::optional<StoreAddress> store;
  /// The failure of the node's workers, if they have failed and the host may not know it.
  std::string failure;
  bool hung = false;  // WorkersFailed::hung
  /// The progress of the round's workers here: see NodeProgressed.
  bool progressed = false;
  std::optional<std::int64_t> step = {};
};
struct KeptAlive {
  ConnectionId from;
};
/// The node leaves for good although its workers have not failed: a signal, a drained machine.
struct NodeLeft {
  ConnectionId from;
};
struct WorkersFailed {
  ConnectionId from;
  std::int64_t round = 0;
  std::string what;   // "rank 3 exited with 1"
  bool hung = false;  // muster has ended the worker because it hung.
};
/// Workers of the node have got further than those of earlier rounds. Sent at once, and again with
/// the last step when the round ends.
struct NodeProgressed {
  ConnectionId from;
  std::int64_t round = 0;
  /// The highest step that a worker has told. Empty: the progress has no number.
  std::optional<std::int64_t> step = {};
};
/// The node asks for a restart of this round; it costs none of --max-restarts.
struct RestartRequested {
  ConnectionId from;
  std::string what;
  /// -1: the current round, whichever it is. An older muster does not send the field.
  std::int64_t round = -1;
};
/// Rank 0's answer to PrepareStore: the workers' store is empty and listens.
struct StoreReady {
  ConnectionId from;
  std::int64_t round = 0;
  std::string addr;
  std::uint16_t port = 0;
};
/// The node has finished its part of the job, or it has failed for good (`succeeded` is false).
struct NodeFinished {
  ConnectionId from;
  std::int64_t round = 0;
  bool succeeded = true;
  std::string what;
};
struct ConnectionLost {
  ConnectionId from;
};
struct RendezvousTimePassed {};
/// A request of an operator (musterctl), not of a node.
struct OperatorAsked {
  enum class What {
    Restart,  // Restart the running round; it costs none of --max-restarts.
    Stop,     // End the run for all nodes, as failed.
    Drain,    // Do not take `node` into the next round.
    Exclude,  // Keep `node` out of all rounds, also of the running one.
    Allow,    // Let `node` in again.
  };
  // A constructor, so that requests that concern no node need only the `What`.
  OperatorAsked(What asked, std::string of_node = {}) : what(asked), node(std::move(of_node)) {}
  What what = What::Restart;
  std::string node;  // A node's name, or a host's address: then all nodes of that host.
  // Only of Drain.
  std::optional<Duration> notice = {};  // The node will go after this time.
  std::string reason = {};
  std::int64_t deadline_ms = 0;  // Doom::deadline_ms; the host sets it.
};

using RendezvousEvent =
    std::variant<NodeJoined, NodeResumed, KeptAlive, NodeLeft, WorkersFailed, RestartRequested,
                 StoreReady, NodeFinished, NodeNotified, NodeSaved, NodeProgressed, ConnectionLost,
                 RendezvousTimePassed, OperatorAsked>;

// --- actions: messages to a muster node ----------------------------------------------------------

/// To rank 0, before any node learns its rank: empty the workers' store, answer with StoreReady.
struct PrepareStore {
  ConnectionId to;
  std::int64_t round = 0;
};
struct RoundComplete {
  ConnectionId to;
  std::int64_t round = 0;
  GroupRank group_rank;
  int group_world_size = 1;
  int restart_count = 0;  // Of the whole job.
  /// Empty with a torchrun node in the round: it writes its number of workers only to the store.
  std::optional<WorkerRanks> workers;
  /// Empty with a torchrun node as rank 0: it publishes MASTER_ADDR itself.
  std::optional<StoreAddress> store;
  std::int64_t life = 0;  // RendezvousSetup::life; an older muster does not send it.
  /// Higher than that of every earlier round of the run. 0: an older muster does not send it.
  std::int64_t generation = 0;
  /// The highest step that workers of earlier rounds have told. Higher ones are progress.
  std::optional<std::int64_t> best_step = {};
};
/// Notice: `who` and perhaps other nodes will go (notice.h).
enum class RestartCause { WorkersFailed, NodeLost, NodeLeft, NodeJoined, Requested, Notice };
/// The `who` of a restart that musterctl requested. No node has the process id 0.
inline NodeName operator_name() {
  return {"operator", 0, 0};
}
/// Stop the workers, then join again.
struct RestartRound {
  ConnectionId to;
  std::int64_t round = 0;
  RestartCause cause = RestartCause::Requested;
  NodeName who;
  std::string what;
  std::int64_t life = 0;
  /// Of the whole job, including this restart. An older muster does not send it.
  int restart_count = 0;
};
/// A torchrun node has closed the run: there will be no further round. Workers may go on.
struct RunClosed {
  ConnectionId to;
};
/// The run has ended for all nodes.
struct RunEnded {
  ConnectionId to;
  bool succeeded = true;
  std::optional<NodeName> who;  // The node that failed first.
  std::string why;
  /// The run was stopped because nodes of it will go. No node has failed.
  bool preempted = false;
  /// So many attempts in a row had ended before any progress when the run failed.
  int without_progress = 0;
  /// The run has ended because of that (--restart-policy).
  bool hopeless = false;
};
struct JoinRefused {
  enum class Why { Version, Settings, NameTaken, Closed, TooManyNodes, TimedOut };
  ConnectionId to;
  Why why = Why::Closed;
  std::string text;  // A sentence that names both sides.
  /// The settings are possible, but the run has others. Not sent: only the host asks for it.
  bool settings_differ = false;
};
/// The host took the node for lost and goes on without it: stop the workers, then join again.
struct NotAMember {
  ConnectionId to;
  std::string why = {};  // Empty: the node was silent for too long.
};
/// Answers NodeResumed: the node is in the round as before, and its workers go on.
struct Resumed {
  ConnectionId to;
  std::int64_t round = 0;
  std::int64_t generation = 0;
  std::int64_t life = 0;
};
/// Answers NodeResumed: the round is over for the node. Stop the workers, then join again.
struct Rejoin {
  ConnectionId to;
  std::int64_t round = -1;  // The newest round whose RestartRound this message replaces.
  std::int64_t life = 0;
  std::string why;
  int restart_count = 0;  // As in RestartRound.
};
/// Something that the node's user should know. Only to nodes that send NodeJoined::command: an
/// older muster does not know the message.
struct Notice {
  ConnectionId to;
  std::string text;
};
/// For the log: a new node runs another command than the first node of its role.
struct CommandsDiffer {
  NodeName who;
  NodeName other;
};
/// For the log: the recovery of a round that an earlier host made is over. If `whole`, all nodes
/// have come back and the round goes on.
struct RoundRecovered {
  bool whole = true;
  std::int64_t round = 0;
  std::int64_t generation = 0;
  std::string why;  // Only if it is not whole.
};
/// For the log: a failure of a round that had ended already has cost a restart.
struct FailureCounted {
  NodeName who;
  std::int64_t round = 0;
  std::string what;
};
/// For the log: a torchrun node's wall clock is off. Its heartbeats are corrected by the skew.
struct ClockSkewSeen {
  NodeName who;
  std::int64_t microseconds = 0;  // How far that clock is ahead of the host's.
};
/// For the log: a node that has not finished is no longer in the run.
struct NodeGone {
  NodeName who;
  std::int64_t round = 0;   // The round that was running or being gathered then.
  std::optional<int> rank;  // In the last complete round.
  RestartCause cause = RestartCause::NodeLost;
  std::string what;
};

/// For the log: a node that was lost repeatedly is not let in yet.
struct NodeHeldBack {
  NodeName who;
  int losses = 0;
  Duration wait{};          // From the last loss on.
  bool of_address = false;  // The losses are those of earlier agents at its address.
};

/// For the log: a node will go.
struct NoticeGiven {
  NodeName who;
  std::optional<int> rank;  // In the last complete round.
  Duration left{};
  std::string reason;
  bool by_operator = false;
};
/// For the log: all workers of the node have answered the notice.
struct NodeAnsweredNotice {
  NodeName who;
  std::optional<int> rank;
  std::int64_t round = 0;
};
/// For the log: a node that was to go has gone, or stays.
struct NoticeOver {
  NodeName who;
  std::optional<int> rank;
  std::string why;
};

/// For the shell: a torchrun node waits in the exit barrier for other nodes, which go on without it
/// or whose job has failed. It must not wait for them. When it then closes the run, as torchrun
/// does at its end, the close does not apply to the other nodes.
struct ReleaseFromExitBarrier {
  ConnectionId client;
};

using RendezvousAction =
    std::variant<PrepareStore, RoundComplete, RestartRound, RunClosed, RunEnded, JoinRefused,
                 NotAMember, Resumed, Rejoin, ClockSkewSeen, NodeGone, NodeHeldBack,
                 ReleaseFromExitBarrier, RoundRecovered, FailureCounted, Notice, CommandsDiffer,
                 PreemptionNotice, NoticeGiven, NodeAnsweredNotice, NoticeOver>;
using RendezvousActions = std::vector<RendezvousAction>;

}  // namespace muster

// What happens to a rendezvous, and what it wants done: the native door's messages as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/round_ranks.h"
#include "rendezvous/core/settings.h"
#include "rendezvous/core/store_request.h"

namespace muster {

/// Raised when an older muster could not understand a newer one's messages.
inline constexpr int kNativeProtocolVersion = 1;
/// A node that says a higher generation is not believed: the numbers must last for the run.
inline constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 52;

/// Where the workers of a round meet.
struct StoreAddress {
  std::string addr;
  std::uint16_t port = 0;
  bool operator==(const StoreAddress&) const = default;
};

// --- events: a node is known by its connection ---------------------------------------------------

/// "I want to be in the next round": its workers, if it had any, have been stopped.
struct NodeJoined {
  ConnectionId from;
  NodeName name;
  /// Random, one for each agent's life. Agents in containers that share the host's network may have
  /// the same address and pid: this tells them apart, and one that is back from a newcomer.
  std::string instance;
  int local_world_size = 1;
  std::string role;
  RunSettings run;
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  /// The newest round that it was told of, complete or to be restarted; -1 for none. Tells a join
  /// that answers a restart from one that was sent before.
  std::int64_t last_round = -1;
  std::optional<int> preferred_rank;
  bool spare = false;
  bool hosts_rendezvous = false;
  /// Who told it of `last_round` (RoundComplete::life): another one's numbers say nothing here.
  std::int64_t life = 0;
  /// The highest generation that this node was told; 0: none.
  std::int64_t generation = 0;
  /// The most restarts of the job that this node was told of: a host that could not record them
  /// knows them from here.
  int restart_count = 0;
  /// The node connects again by itself and resumes its place: see NodeResumed.
  bool resumes = false;
};
/// "My connection is a new one, and I am still in this round": instead of a join.
struct NodeResumed {
  enum class State {
    Running,   // Its workers run.
    Stopped,   // Its workers do not run any more: they have failed, or were stopped.
    Finished,  // Its workers have ended well.
  };
  ConnectionId from;
  /// As in its last join: a host that knows nothing takes the node in by it. `join.last_round`,
  /// `join.life` and `join.generation` are those of the round.
  NodeJoined join;
  State state = State::Running;
  /// What the round's RoundComplete said.
  int group_rank = 0;
  int group_world_size = 1;
  int restart_count = 0;
  std::optional<WorkerRanks> workers;
  std::optional<StoreAddress> store;
  /// Why its workers are stopped, if they have failed and the host may not know it.
  std::string failure;
};
struct KeptAlive {
  ConnectionId from;
};
/// It will not come back, and its workers have not failed: a signal, a drained machine.
struct NodeLeft {
  ConnectionId from;
};
struct WorkersFailed {
  ConnectionId from;
  std::int64_t round = 0;
  std::string what;  // "rank 3 exited with 1"
};
/// Somebody asked for a restart of this round; it costs none of --max-restarts.
struct RestartRequested {
  ConnectionId from;
  std::string what;
  /// -1: whichever round it is. An older muster does not say it.
  std::int64_t round = -1;
};
/// Rank 0's answer to PrepareStore: the workers' store is empty and listens.
struct StoreReady {
  ConnectionId from;
  std::int64_t round = 0;
  std::string addr;
  std::uint16_t port = 0;
};
/// The node's part of the job is over, for good.
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
/// A person has asked for it, not a node.
struct OperatorAsked {
  enum class What {
    Restart,  // Of the round that runs; it costs none of --max-restarts.
    Stop,     // The run ends for everybody, and has failed.
    Drain,    // `node` is not taken into the next round.
    Exclude,  // `node` is kept out of rounds, of the one that runs, too.
    Allow,    // `node` is let in again.
  };
  // Not an aggregate: what does not concern a node is its own name.
  OperatorAsked(What asked, std::string of_node = {}) : what(asked), node(std::move(of_node)) {}
  What what = What::Restart;
  std::string node;  // A node's name, or a host's address: then all nodes of that host.
};

using RendezvousEvent =
    std::variant<NodeJoined, NodeResumed, KeptAlive, NodeLeft, WorkersFailed, RestartRequested,
                 StoreReady, NodeFinished, ConnectionLost, RendezvousTimePassed, OperatorAsked>;

// --- actions: messages to a muster node ----------------------------------------------------------

/// To rank 0, before anybody learns its rank: empty the workers' store, answer StoreReady.
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
  /// Nothing with a torchrun node in the round: its number of workers is only known to the store.
  std::optional<WorkerRanks> workers;
  /// Nothing with a torchrun node as rank 0: it publishes MASTER_ADDR itself.
  std::optional<StoreAddress> store;
  std::int64_t life = 0;  // RendezvousSetup's; an older muster does not say it.
  /// Higher than that of every round of the run before it. 0: an older muster does not say it.
  std::int64_t generation = 0;
};
enum class RestartCause { WorkersFailed, NodeLost, NodeLeft, NodeJoined, Requested };
/// `who` of a restart that nobody in the run asked for, but musterctl. No node has process 0.
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
  int restart_count = 0;  // Of the whole job, this one included; an older muster does not say it.
};
/// A torchrun node has closed the run: there will be no further round. Workers may go on.
struct RunClosed {
  ConnectionId to;
};
/// It is over for everybody.
struct RunEnded {
  ConnectionId to;
  bool succeeded = true;
  std::optional<NodeName> who;  // Who failed first.
  std::string why;
};
struct JoinRefused {
  enum class Why { Version, Settings, NameTaken, Closed, TooManyNodes, TimedOut };
  ConnectionId to;
  Why why = Why::Closed;
  std::string text;  // A sentence that names both sides.
};
/// It was taken for lost, and the round goes on without it: stop the workers, then join again.
struct NotAMember {
  ConnectionId to;
};
/// Answers NodeResumed: it is in the round as before, and its workers go on.
struct Resumed {
  ConnectionId to;
  std::int64_t round = 0;
  std::int64_t generation = 0;
  std::int64_t life = 0;
};
/// The other answer: the round is over for it. Stop the workers, then join again.
struct Rejoin {
  ConnectionId to;
  std::int64_t round = -1;  // The newest of this rendezvous that it need not be told of any more.
  std::int64_t life = 0;
  std::string why;
  int restart_count = 0;  // As in RestartRound.
};
/// For the log: the nodes of an earlier life's round have come back, all of them or not.
struct RoundRecovered {
  bool whole = true;
  std::int64_t round = 0;
  std::int64_t generation = 0;
  std::string why;  // If it is not whole.
};
/// For the log: a torchrun node's wall clock is off. Its heartbeats are read relative to that.
struct ClockSkewSeen {
  NodeName who;
  std::int64_t microseconds = 0;  // Ahead of ours.
};
/// For the log: a node that has not finished is in the run no more.
struct NodeGone {
  NodeName who;
  std::optional<int> rank;  // In the last complete round.
  RestartCause cause = RestartCause::NodeLost;
  std::string what;
};

/// For the log: a node that was lost again and again is not let in yet.
struct NodeHeldBack {
  NodeName who;
  int losses = 0;
  Duration wait{};  // From the last loss on.
};

/// For the shell: a torchrun node waits at its end for others that go on without it, or whose job
/// has failed. Nobody will come, so it need not wait; and when it closes the run, as torchrun does
/// at its end, that is not for the others.
struct LetGo {
  ConnectionId client;
};

using RendezvousAction = std::variant<PrepareStore, RoundComplete, RestartRound, RunClosed,
                                      RunEnded, JoinRefused, NotAMember, Resumed, Rejoin,
                                      ClockSkewSeen, NodeGone, NodeHeldBack, LetGo, RoundRecovered>;
using RendezvousActions = std::vector<RendezvousAction>;

}  // namespace muster

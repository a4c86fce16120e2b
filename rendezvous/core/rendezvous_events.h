// What happens to a rendezvous, and what it wants done: the native door's messages as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/round_ranks.h"
#include "rendezvous/core/settings.h"
#include "rendezvous/core/store_request.h"

namespace muster {

/// Raised when an older muster could not understand a newer one's messages.
inline constexpr int kNativeProtocolVersion = 1;

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
/// Somebody asked for a restart; it costs none of --max-restarts.
struct RestartRequested {
  ConnectionId from;
  std::string what;
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

using RendezvousEvent =
    std::variant<NodeJoined, KeptAlive, NodeLeft, WorkersFailed, RestartRequested, StoreReady,
                 NodeFinished, ConnectionLost, RendezvousTimePassed>;

// --- actions: messages to a muster node ----------------------------------------------------------

/// To rank 0, before anybody learns its rank: empty the workers' store, answer StoreReady.
struct PrepareStore {
  ConnectionId to;
  std::int64_t round = 0;
};
struct StoreAddress {
  std::string addr;
  std::uint16_t port = 0;
  bool operator==(const StoreAddress&) const = default;
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
};
enum class RestartCause { WorkersFailed, NodeLost, NodeLeft, NodeJoined, Requested };
/// Stop the workers, then join again.
struct RestartRound {
  ConnectionId to;
  std::int64_t round = 0;
  RestartCause cause = RestartCause::Requested;
  NodeName who;
  std::string what;
  std::int64_t life = 0;
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

/// For the shell: a torchrun node waits at its end for others that go on without it, or whose job
/// has failed. Nobody will come, so it need not wait; and when it closes the run, as torchrun does
/// at its end, that is not for the others.
struct LetGo {
  ConnectionId client;
};

using RendezvousAction =
    std::variant<PrepareStore, RoundComplete, RestartRound, RunClosed, RunEnded, JoinRefused,
                 NotAMember, ClockSkewSeen, NodeGone, LetGo>;
using RendezvousActions = std::vector<RendezvousAction>;

}  // namespace muster

// The interface through which one node takes part in the rendezvous of its run.
//
// There is one implementation for each kind of rendezvous: native_session (the host is a muster),
// c10d_session (the host is a torchrun), static_session (--rdzv-backend static), local_session (one
// node, no network). network_session (c10d) and etcd_session find out who the host is, and then use
// one of these. A new backend needs a new implementation. Everything runs on the agent's only loop.
// After close() no handler is called.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "agent/core/worker_env.h"
#include "base/net/listener.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/rounds/node_report.h"

namespace muster {

/// A complete round: the workers may start.
struct SessionRound {
  std::int64_t round = 0;
  RoundFacts facts;
  /// True: the rendezvous counts the failures of the whole job. facts.restart_count is its count,
  /// and the rendezvous decides whether there is another restart. False: this node counts its own
  /// failures, as torchrun does.
  bool job_decides = false;
};

/// The job has ended for all nodes.
struct SessionEnd {
  bool succeeded = true;
  /// The node that failed first. Empty: no node failed, or this node did.
  std::string failed_node;
  std::string why;
  /// The job was stopped because nodes of it will go (JobNotice). No node has failed.
  bool preempted = false;
  /// So many attempts in a row had ended before any progress. hopeless: the job ends for that.
  int without_progress = 0;
  bool hopeless = false;
};

/// Workers of this node have failed.
struct WorkersFailure {
  std::string what;   // Sent to all nodes: "rank 3 exited with 1".
  bool hung = false;  // muster has ended the worker because it hung.
};

struct SessionRestart {
  std::string why;  // A sentence for people.
  /// A node has left or wants to join, or an operator restarts the run. No failure has caused it,
  /// so the workers may still save.
  bool is_planned = false;
  /// The round ends for a notice (JobNotice): all nodes have answered it, or its deadline is here.
  bool for_notice = false;
};

/// This node will go.
struct NodeNotice {
  /// The time until muster begins to stop workers that have not answered.
  Duration left{};
  std::string reason;
};

/// Nodes of the job will go at `deadline`, and every node is told. The workers should save now.
struct JobNotice {
  Instant deadline{};
  std::string reason;
  /// The global ranks, in the current round, of the workers that go: ranges [first, last], in
  /// order. Empty: they are not known, or none of them is in the round.
  std::vector<std::pair<int, int>> doomed_ranks;
  bool this_node = false;  // This node is one of those that go.
  /// What follows when all nodes have answered, and at the deadline. True: the job is stopped
  /// (SessionEnd::preempted). False: the round restarts without the nodes that go.
  bool stops = true;
};

/// The workers' store, which the agent of node rank 0 hosts.
struct HostedStore {
  std::uint16_t port = 0;
};
using HostedStoreResult = boost::system::result<HostedStore, ListenError>;

class RendezvousSession {
 public:
  struct Handlers {
    std::function<void(SessionRound)> on_round;
    /// The round is over because a node failed, left or wants to join. The agent must stop the
    /// workers and then call join() again.
    std::function<void(const SessionRestart&)> on_restart;
    std::function<void(SessionEnd)> on_end;
    /// Nodes of the job will go. Called again when something of the notice has changed, and after
    /// on_round while the notice holds. on_restart or on_end follows, unless the notice is over:
    /// its nodes have gone already, or stay after all.
    std::function<void(const JobNotice&)> on_notice = {};
    /// The rendezvous has failed and is not tried again. `reason` is a sentence that says what was
    /// tried, how the last try ended, and which option sets the limit.
    std::function<void(std::string reason)> on_failed;
    /// This node is rank 0. The agent must start the workers' store, or empty a running one, and
    /// then call `done`.
    std::function<void(std::function<void(const HostedStoreResult&)> done)> host_store;
    /// Called before the first host_store, if the address is known. Every other node is told this
    /// numeric address of this machine, so the workers' store needs to listen only there and on
    /// loopback.
    std::function<void(const std::string& address)> restrict_store = {};
    /// Called before host_store if the token was renewed: nodes must prove this one from now on.
    std::function<void(SharedTokenCrypto token)> set_store_token = {};
    /// On rank 0: sets what the workers' store answers when another node asks whether the nodes of
    /// this generation still reach each other. `whole_at` is when they last did. Empty: unknown.
    std::function<void(std::int64_t generation, std::optional<Instant> whole_at)> set_reach_answer =
        {};
    /// The host passes on a person's question: a worker's log, or the stack of a worker. The agent
    /// calls `done` once.
    std::function<void(const NodeAsked& asked, std::function<void(NodeAnswered)> done)> on_asked =
        {};
  };
  virtual ~RendezvousSession() = default;

  /// Asks for a place in the next round. No worker of the last round may be alive. on_round, on_end
  /// or on_failed follows.
  virtual void join() = 0;
  /// Workers of the current round have failed.
  /// If the rendezvous decides about restarts (job_decides), on_restart or on_end follows.
  /// Otherwise the agent calls join() or finished(false).
  virtual void workers_failed(const WorkersFailure& failure) = 0;
  /// A worker of the current round has told this step. Empty: the workers have made progress that
  /// has no number.
  virtual void progressed(std::optional<std::int64_t> step) { static_cast<void>(step); }
  /// This node's workers have ended for good. After a success the session waits at the exit
  /// barrier. on_end follows in any case.
  virtual void finished(bool succeeded, const std::string& what) = 0;
  /// This node leaves for another reason than a failure, such as a signal. No handler is called
  /// afterwards.
  virtual void leave() = 0;
  /// This node will go: all nodes of the job are told. Repeated calls merge, and the earliest
  /// deadline holds. May be called before join().
  virtual void notify(const NodeNotice& notice) { static_cast<void>(notice); }
  /// All workers of this node have answered the notice: the node needs no more time in this round.
  virtual void saved() {}
  /// Another node has asked this node's store whether the round is whole: that node reaches this
  /// one.
  virtual void peer_reached(std::int64_t generation, int group_rank) {
    static_cast<void>(generation);
    static_cast<void>(group_rank);
  }
  /// Sends the state of this node's workers to the host, for people to see. Dropped if the host
  /// takes no reports.
  virtual void report(const NodeReport& report) { static_cast<void>(report); }
  /// No handler is called after this.
  virtual void close() = 0;
  /// After close(): calls `done` when everything that was sent has left. If this node hosts the
  /// rendezvous, it also waits until the other nodes know how the job ended: for two seconds at
  /// most, five with the etcd backend.
  virtual void drain(const std::function<void()>& done) { done(); }
};

/// Runs a task of `session` and keeps the session alive until the task has ended.
inline boost::asio::awaitable<void> keeping_alive(std::shared_ptr<RendezvousSession> session,
                                                  boost::asio::awaitable<void> task) {
  co_await std::move(task);
  session.reset();
}

}  // namespace muster

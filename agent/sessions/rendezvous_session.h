// How one node takes part in a run's rendezvous, whatever carries it.
//
// One implementation for each way: native_session (a host that is muster), c10d_session (a host
// that is torchrun), static_session (--rdzv-backend static), local_session (one node, no network).
// A further backend is a further implementation. Everything happens on the agent's one loop; after
// close() no handler is called any more.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "agent/core/worker_env.h"
#include "rendezvous/core/node_report.h"
#include "rendezvous/net/listener.h"

namespace muster {

/// A round that is complete: the workers may start.
struct SessionRound {
  std::int64_t round = 0;
  RoundFacts facts;
  /// The rendezvous counts failures, for the whole job: facts.restart_count is its count, and it
  /// decides whether there is another restart. Otherwise this node counts its own, as torchrun
  /// does.
  bool job_decides = false;
};

/// It is over for everybody.
struct SessionEnd {
  bool succeeded = true;
  std::string who;  // The node that failed first; empty: nobody, or this one.
  std::string why;
};

/// The workers' store, which the agent of rank 0 hosts.
struct HostedStore {
  std::uint16_t port = 0;
};
using HostedStoreResult = boost::system::result<HostedStore, ListenError>;

class RendezvousSession {
 public:
  struct Handlers {
    std::function<void(SessionRound)> on_round;
    /// The round is broken (a node failed, left or wants to join): stop the workers, then join()
    /// again. `why` is a sentence for people.
    std::function<void(std::string why)> on_restart;
    std::function<void(SessionEnd)> on_end;
    /// There will be no rendezvous: for good, all retries are spent. A sentence that says what was
    /// tried, what came of it last, and which option sets the limit.
    std::function<void(std::string reason)> on_failed;
    /// This node is rank 0: empty the workers' store, or start it, then call `done`.
    std::function<void(std::function<void(const HostedStoreResult&)> done)> host_store;
    /// Before the first host_store, where that is known: every other node is told this numeric
    /// address of this machine, so the workers' store need not listen at any other but loopback.
    std::function<void(const std::string& address)> store_at = {};
    /// What the workers' store of this node, rank 0, answers to other nodes that ask whether the
    /// round of this generation is whole: when it was, or nothing.
    std::function<void(std::int64_t generation, std::optional<Instant> whole_at)> vouch = {};
    /// The host asks for people: a worker's log, or where it stands. `done` is called once.
    std::function<void(const NodeAsked& asked, std::function<void(NodeAnswered)> done)> on_asked =
        {};
  };
  virtual ~RendezvousSession() = default;

  /// Wants to be in the next round; no worker of the last one lives any more. Answered by on_round,
  /// on_end or on_failed.
  virtual void join() = 0;
  /// Of the current round. `what` is said to everybody: "rank 3 exited with 1". If the rendezvous
  /// decides, join() or on_end follows; if not, the agent goes on by join() or finished(false).
  virtual void workers_failed(const std::string& what) = 0;
  /// This node's part is over. If it succeeded: the exit barrier; on_end follows in any case.
  virtual void finished(bool succeeded, const std::string& what) = 0;
  /// It will not come back, for another reason than a failure: a signal. Nothing follows.
  virtual void leave() = 0;
  /// Another node has asked this node's store whether the round is whole: it reaches us.
  virtual void peer_reached(std::int64_t generation, int group_rank) {
    static_cast<void>(generation);
    static_cast<void>(group_rank);
  }
  /// For people: how the workers of this node are. Lost where the host takes no reports.
  virtual void report(const NodeReport& report) { static_cast<void>(report); }
  /// Calls no handler any more.
  virtual void close() = 0;
  /// After close(): calls `done` when what was told has left, and if this node hosts the
  /// rendezvous, when the others know how it ended; after two seconds in any case.
  virtual void drain(const std::function<void()>& done) { done(); }
};

/// A task of `session`, which lives until the task has ended.
inline boost::asio::awaitable<void> while_alive(std::shared_ptr<RendezvousSession> session,
                                                boost::asio::awaitable<void> task) {
  co_await std::move(task);
  session.reset();
}

}  // namespace muster

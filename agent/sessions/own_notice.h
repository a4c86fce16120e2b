// The notice that this node will go, for a session without a host that tells the other nodes: the
// only node of a job, the static backend, a torchrun host.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/worker_env.h"
#include "agent/sessions/rendezvous_session.h"

namespace muster {

class OwnNotice {
 public:
  struct Handlers {
    std::function<void(const JobNotice&)> tell;  // This node's workers.
    /// The deadline is here, or finish() was called. The session must end. Called once.
    std::function<void(SessionEnd)> end;
  };
  OwnNotice(const boost::asio::any_io_executor& executor, Handlers handlers);
  ~OwnNotice() { cancel(); }
  OwnNotice(const OwnNotice&) = delete;
  OwnNotice& operator=(const OwnNotice&) = delete;

  /// A later notice counts only if its deadline is earlier.
  void give(const NodeNotice& notice);
  /// The workers of a round have started: they are told of a notice that holds.
  void round_begins(const AssignedRanks& ranks, int local_world_size);
  /// The workers are being stopped, or have ended.
  void round_ends() { ranks_.reset(); }
  /// Nothing is left to wait for: ends the session if a notice holds.
  void finish();
  /// No handler is called after this.
  void cancel();

 private:
  void tell() const;

  Handlers handlers_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For the timer.
  std::optional<Instant> deadline_;
  std::string reason_;
  std::optional<std::pair<int, int>> ranks_;  // Of the round whose workers run.
};

}  // namespace muster

// Watches for workers that wait in the kernel for too long (agent/core/uninterruptible.h), with one
// timer. Exists only where TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT asks for it.

#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/uninterruptible.h"

namespace muster {

/// What the workers' environment asks for; nothing: do not watch.
std::optional<Duration> uninterruptible_timeout_of(const std::vector<std::string>& environment);

class StateWatch {
 public:
  using OnStuck = std::function<void(const StuckWorker&)>;
  /// The state of a process: R, S, D, Z …, '?' if it is not there.
  using ReadState = std::function<char(pid_t)>;

  /// `on_stuck` is called at most once between two calls of reset(). `read_state`: process_state.
  StateWatch(boost::asio::io_context& io, Duration timeout, OnStuck on_stuck, ReadState read_state);

  void started(LocalRank rank, pid_t pid);
  void ended(LocalRank rank);
  /// The attempt is over, or is being stopped: nothing is watched until the next start.
  void reset();

 private:
  void arm();
  void look();

  boost::asio::steady_timer timer_;
  UninterruptibleDetector detector_;
  OnStuck on_stuck_;
  ReadState read_state_;
  std::map<LocalRank, pid_t> workers_;
  bool armed_ = false;
};

/// For the log and the failure report: "it waits in the kernel (state D) for 30.0 s, where no
/// signal reaches it".
std::string stuck_text(Duration stuck);

}  // namespace muster

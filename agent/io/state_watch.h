// Watches for workers that wait in the kernel for too long (agent/core/uninterruptible.h). Exists
// only where TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT asks for it.

#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/uninterruptible.h"
#include "agent/core/worker_table.h"
#include "agent/io/repeated_look.h"

namespace muster {

/// What the workers' environment asks for; nothing: do not watch.
std::optional<Duration> uninterruptible_timeout_of(const std::vector<std::string>& environment);

class StateWatch {
 public:
  using OnStuck = std::function<void(const StuckWorker&)>;
  /// The state of a process: R, S, D, Z …, '?' if it is not there.
  using ReadState = std::function<char(pid_t)>;

  /// `on_stuck` is called at most once between two calls of stop(). `read_state`: process_state.
  StateWatch(boost::asio::io_context& io, const WorkerTable& workers, Duration timeout,
             OnStuck on_stuck, ReadState read_state);

  /// Watches from now on, as long as a worker runs.
  void begin() { look_.begin(); }
  /// The attempt is over, or is being stopped: nothing is watched until begin().
  void stop();

 private:
  bool look();

  const WorkerTable& workers_;
  UninterruptibleDetector detector_;
  OnStuck on_stuck_;
  ReadState read_state_;
  RepeatedLook look_;
};

/// For the log and the failure report: "it waits in the kernel (state D) for 30.0 s, where no
/// signal reaches it".
std::string stuck_text(Duration stuck);

}  // namespace muster

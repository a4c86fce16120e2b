// Detects a worker that waits in the kernel, in state D, for too long:
// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT.
//
// Pure. A process in this state waits for a disk, a network file system or a driver. Until the wait
// ends, it runs no code of its own and reacts to no signal, not even to SIGKILL.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/core/watched_time.h"
#include "base/ids.h"
#include "base/time.h"

namespace muster {

/// Parses the variable's text: seconds, as Python's float() reads them. Empty if the text is not a
/// number above 0: then no worker is watched, as under torchrun.
std::optional<Duration> uninterruptible_timeout(std::string_view text);

struct WorkerState {
  LocalRank rank;
  char state = '?';  // As in /proc/PID/stat. '?': not readable, so it does not count as D.
};

struct StuckWorker {
  LocalRank rank;
  Duration stuck{};
};

class UninterruptibleDetector {
 public:
  /// `timeout` must be above 0.
  explicit UninterruptibleDetector(Duration timeout);

  /// How often to call observe(). A timeout is detected at most a tenth of it late, but the
  /// interval is never below a tenth of a second, which is torchrun's interval.
  Duration interval() const { return interval_; }

  /// Expects the state of every worker that is alive. Returns the worker that has been in state D
  /// for longest, if that is the timeout or more. A worker may have left D unseen between two
  /// calls, as under torchrun. Only watched time counts (watched_time.h).
  std::optional<StuckWorker> observe(const std::vector<WorkerState>& states, Instant now);

  void reset();

 private:
  Duration timeout_;
  Duration interval_;
  std::map<LocalRank, Duration> stuck_;  // The workers in state D.
  WatchedTime time_;
};

}  // namespace muster

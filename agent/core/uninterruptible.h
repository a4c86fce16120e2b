// When a worker waits in the kernel, state D, for too long:
// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT.
//
// Pure. Such a process runs no code of its own and takes no signal, not even SIGKILL, until what it
// waits for has happened: a disk, a network file system, a driver.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/core/watched_time.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

/// Of the variable's text, seconds as Python's float() reads them; nothing: not a number above 0,
/// so nothing is watched, as under torchrun.
std::optional<Duration> uninterruptible_timeout(std::string_view text);

struct WorkerState {
  LocalRank rank;
  char state = '?';  // As in /proc/PID/stat; '?': not readable, so not D.
};

struct StuckWorker {
  LocalRank rank;
  Duration stuck{};
};

class UninterruptibleDetector {
 public:
  /// `timeout` is above 0.
  explicit UninterruptibleDetector(Duration timeout);

  /// How often to observe: at most a tenth of the timeout late, and no more often than ten times a
  /// second, as torchrun looks.
  Duration interval() const { return interval_; }

  /// Takes the state of every worker that is alive: the one that has been in D for longest, if that
  /// is the timeout or more. Between two looks it may have left D unseen, as under torchrun. Time
  /// in which nobody looked does not count.
  std::optional<StuckWorker> observe(const std::vector<WorkerState>& states, Instant now);

  void reset();

 private:
  Duration timeout_;
  Duration interval_;
  std::map<LocalRank, Duration> stuck_;  // Those in D.
  WatchedTime time_;
};

}  // namespace muster

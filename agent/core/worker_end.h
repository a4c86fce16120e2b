// How a worker ended, and what muster had done to it before. The supervisor, the shim and the
// reports share these types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace muster {

struct WorkerExit {
  bool killed = false;  // Killed by the signal `status`; otherwise exited with `status`.
  int status = 0;
  bool core_dumped = false;

  bool ok() const { return !killed && status == 0; }
  /// The exit code as Python represents it: for a signal, its negative number.
  int code() const { return killed ? -status : status; }
};

/// "exited with 3", "was killed by SIGKILL"
std::string exit_text(const WorkerExit& exit);

/// Notices that the wall clock was set. Each offset is the wall clock minus a clock that nobody can
/// set, at some moment.
class WallClockWatch {
 public:
  /// Smaller differences do not matter: the times in error files are whole seconds.
  static constexpr std::int64_t kToleranceMs = 1000;

  void add(std::int64_t offset_ms);
  void add(const WallClockWatch& other);
  bool was_set() const { return offsets_ && offsets_->second - offsets_->first > kToleranceMs; }

 private:
  std::optional<std::pair<std::int64_t, std::int64_t>> offsets_;  // The least and the greatest.
};

/// The facts about one worker of an attempt. The record also exists while the worker is alive.
struct WorkerEnd {
  LocalRank local_rank;
  GlobalRank rank;
  int pid = 0;      // 0: it was never started.
  WorkerExit exit;  // Only if it has ended.
  int order = 0;    // The position in the order in which the kernel reported deaths; 0: first.
  /// Wall clock since the epoch: shown to people, and compared with error files. 0: still alive.
  std::int64_t died_ms = 0;
  /// When muster first signalled the worker to end. Empty if it was not alive then.
  std::optional<std::int64_t> signalled_ms;
  std::vector<int> sent;            // The signals that muster sent for that, in order.
  bool can_outlive_signal = false;  // The worker caught, ignored or blocked one of them.
  WallClockWatch clock;             // Has the offsets at the start, the signals and the end.

  bool has_ended() const { return died_ms != 0; }
  /// For a report at the end of the job: a worker that has not ended could not be killed.
  bool has_failed() const { return !has_ended() || !exit.ok(); }
  bool was_sent(int signal) const;
  void record_signal(int signal, bool can_outlive, std::int64_t now_ms);
};

}  // namespace muster

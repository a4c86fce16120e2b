// Decides, from samples of CPU time and written bytes, when a worker has been idle for too long.
//
// Pure. A worker is idle while it and its descendants write nothing and use at most one percent of
// a CPU: frameworks keep threads that wake up now and then. Bytes written to any file count. A
// worker that waits on purpose can therefore show activity by writing one byte, even to /dev/null.
//
// NCCL spins while it waits for a lost rank, so CPU time alone does not prove progress. A worker
// that reports progress promises further reports: from then on, only such reports count as
// activity.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "agent/core/watched_time.h"
#include "base/ids.h"
#include "base/time.h"

namespace muster {

/// What a worker and its descendants have done since they started.
struct WorkerActivity {
  LocalRank rank;
  Duration cpu{};
  std::uint64_t bytes_written = 0;  // To any file, by write() and related calls.
  bool stopped = false;  // A signal or a debugger has stopped one of them: idle on purpose.
  bool complete = true;  // All of these processes could be read in time.
};

struct IdleWorker {
  LocalRank rank;
  Duration idle{};
  bool has_promised = false;  // May have been active, but has not reported progress.
};

class HangDetector {
 public:
  /// `timeout` must be above 0.
  explicit HangDetector(Duration timeout);

  /// How often to call observe(). A hang is detected at most a tenth of the timeout late.
  Duration interval() const { return interval_; }

  /// Expects one sample of every worker that is alive. The result is empty as long as no worker has
  /// been idle for the timeout. Otherwise it has all workers that have been idle for two intervals,
  /// the longest first. Time in which the machine slept or the agent was stopped does not count. If
  /// the console is full and no worker has written anything, the time does not count either: a
  /// worker may wait for the console's reader, and the others for that worker.
  std::vector<IdleWorker> observe(const std::vector<WorkerActivity>& samples, Instant now,
                                  bool console_is_full = false);

  /// The worker has reported progress, and promises further reports.
  void progressed(LocalRank rank);
  /// The worker has withdrawn that promise: bytes written and CPU time count again.
  void ended_progress(LocalRank rank);

  /// The worker has answered a notice, and waits until it is stopped: it is not idle any more.
  void saved(LocalRank rank) { saved_.insert(rank); }

  /// Forgets all samples and promises, because a new attempt has new workers.
  void reset();

 private:
  bool has_written(const WorkerActivity& sample) const;

  struct Watched {
    WorkerActivity last;
    Duration cpu{};  // The CPU time when the worker was last active.
    Duration idle{};
  };
  Duration timeout_;
  Duration interval_;
  std::map<LocalRank, Watched> watched_;
  std::set<LocalRank> promised_;
  std::set<LocalRank> saved_;
  WatchedTime time_;
};

}  // namespace muster

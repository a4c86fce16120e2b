// When a worker does nothing for too long: from samples of what it used and wrote to a decision.
//
// Pure. A worker is idle while it writes nothing, its descendants included, and takes at most one
// percent of a CPU: frameworks keep threads that wake up now and then. Bytes are bytes to anywhere,
// so a worker that waits on purpose gives a sign of life by writing one, if only to /dev/null.
//
// NCCL spins while it waits for a rank that is lost. So a worker that reports progress promises
// further reports, and they alone are signs of life from then on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "agent/core/watched_time.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

/// What a worker and its descendants have done since they began.
struct WorkerActivity {
  LocalRank rank;
  Duration cpu{};
  std::uint64_t bytes_written = 0;  // To anything, by write() and its kin.
  bool stopped = false;  // One of them: by a signal or a debugger. Then idleness is meant.
  bool complete = true;  // Each of them could be read in time.
};

struct IdleWorker {
  LocalRank rank;
  Duration idle{};
  bool has_promised = false;  // It may have worked, but has not reported progress.
};

class HangDetector {
 public:
  /// `timeout` is above 0.
  explicit HangDetector(Duration timeout);

  /// How often to observe: often enough to be at most a tenth of the timeout late.
  Duration interval() const { return interval_; }

  /// Takes one sample of every worker that is alive. Empty as long as none has been idle for the
  /// timeout; else all that have been idle for two intervals, the longest first. Time in which
  /// nobody looked (the machine slept, the agent was stopped) does not count.
  std::vector<IdleWorker> observe(const std::vector<WorkerActivity>& samples, Instant now);

  /// It has reported progress, and promises to do so again.
  void progressed(LocalRank rank);
  /// It takes the promise back: what it writes and computes counts again.
  void ended_progress(LocalRank rank);

  /// New workers: what was seen so far is of others.
  void reset();

 private:
  struct Watched {
    WorkerActivity last;
    Duration cpu{};  // When it was last seen to work.
    Duration idle{};
  };
  Duration timeout_;
  Duration interval_;
  std::map<LocalRank, Watched> watched_;
  std::set<LocalRank> promised_;
  WatchedTime time_;
};

}  // namespace muster

// How what an attempt has left is ended: processes that its workers have started, and that are
// alive when all workers have ended.
//
// Pure. Such a process often begins its work only then: Python's resource_tracker and torch's
// torch_shm_manager remove shared memory when the last of their users is dead, and an upload in the
// background saves a result. So what is left has time to end by itself. Then it gets SIGTERM, and
// in the end SIGKILL. Each of these times can be 0, and no process of a job outlives muster.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/watched_time.h"
#include "base/time.h"

namespace muster {

/// The time that leftovers have.
struct LeftoverTimes {
  Duration until_sigterm{};  // From the end of the last worker. They can end by themselves.
  Duration until_sigkill{};  // From SIGTERM.
};

/// The times before a restart and after a failure, for what is cleaning up.
constexpr LeftoverTimes kCleanUp{.until_sigterm = std::chrono::seconds(2),
                                 .until_sigkill = std::chrono::seconds(2)};

/// The same with --leftover-timeout, which bounds the time before SIGTERM in any case.
inline LeftoverTimes clean_up_times(Duration leftover_timeout) {
  return {std::min(kCleanUp.until_sigterm, leftover_timeout), kCleanUp.until_sigkill};
}

/// The same after the agent's death. --shutdown-timeout bounds both times, as it does for workers.
inline LeftoverTimes clean_up_times(Duration leftover_timeout, Duration shutdown_timeout) {
  const LeftoverTimes times = clean_up_times(leftover_timeout);
  return {std::min(times.until_sigterm, shutdown_timeout),
          std::min(times.until_sigkill, shutdown_timeout)};
}

/// The state of leftovers when they are named.
enum class LeftoverStage {
  Wait,              // They have time to end by themselves.
  Terminate,         // Those in the session of a worker get SIGTERM.
  TerminateDaemons,  // Those in other sessions get SIGTERM.
  Kill,              // They get SIGKILL.
};

/// Decides when leftovers get their signals. Counts only time in which the caller has run.
class LeftoverWait {
 public:
  /// The leftovers are named in the stage Wait after this time. Most of them end before.
  static constexpr Duration kQuietTime = std::chrono::milliseconds(250);
  /// The time that daemons have after the end of their clients, which are in the workers' sessions.
  /// torch_shm_manager (torch 2.13) waits 2 s for further clients before it cleans up, and a
  /// SIGTERM ends it without.
  static constexpr Duration kDaemonTime = std::chrono::milliseconds(2500);

  LeftoverWait(LeftoverTimes times, Instant now) : times_(times), wait_(now) {}
  /// Each of the times becomes the smaller one of the present and this one.
  void shorten(LeftoverTimes times);
  /// The stage that begins now, or nothing. Each stage begins once, in the order of the enum. To be
  /// called again until it returns nothing.
  std::optional<LeftoverStage> advance(Instant now);
  /// To be called in the stage Terminate: whether a process in the session of a worker is left, and
  /// whether a daemon is.
  void terminate(bool members, bool daemons);
  /// The time until advance() must be called again.
  Duration until_next_check() const;
  const LeftoverTimes& times() const { return times_; }

 private:
  Duration next_at() const;

  LeftoverTimes times_;
  WatchedWait wait_;
  Duration passed_{};   // Since the begin.
  Duration next_at_{};  // From the stage Terminate on: the value of passed_ at the next stage.
  bool has_daemons_ = false;
  std::optional<LeftoverStage> stage_;
};

/// A process that an attempt has left.
struct Leftover {
  int pid = 0;
  std::string command;
};

/// The line about leftovers that enter `stage`. `count`: of all, of which `named` are some.
/// `until_sigterm`: the time that they have, in the stage Wait.
std::string leftover_text(LeftoverStage stage, const std::vector<Leftover>& named, int count,
                          Duration until_sigterm);

}  // namespace muster

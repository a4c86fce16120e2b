// Timeouts that count only the time in which this process was running.
//
// Pure. A suspended machine, a paused virtual machine and a stopped process continue later as if no
// time had passed. No process could act in that time, so it counts neither as silence nor as
// idleness, even though the clock has counted it. A caller therefore reports its checks regularly,
// and a long gap between two checks counts only in part.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/time.h"

namespace muster {

class WatchedTime {
 public:
  /// A gap between two checks counts for at most so many intervals.
  static constexpr int kCountedIntervals = 2;

  /// Records a check at `now`; the caller checks once in each `interval`. Returns how much of the
  /// time since the previous check counts: 0 for the first check.
  Duration advance(Instant now, Duration interval) {
    const Duration passed =
        last_ ? std::min(now - *last_, kCountedIntervals * interval) : Duration{};
    last_ = now;
    return passed;
  }
  std::optional<Instant> last() const { return last_; }
  /// Starts again: the next check is the first.
  void reset() { last_.reset(); }

 private:
  std::optional<Instant> last_;
};

/// The length of one wait, in watched time. The caller checks once a second or more often; a longer
/// gap between two checks counts as two seconds at most.
class WatchedWait {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);

  explicit WatchedWait(Instant now) { time_.advance(now, kInterval); }
  /// Records a check, and returns the length of the wait up to `now`.
  Duration advance(Instant now) { return length_ += time_.advance(now, kInterval); }
  /// The time until the next check is due, for a wait that ends after `limit`.
  Duration until_next_check(Duration limit) const {
    return std::clamp(limit - length_, Duration{}, kInterval);
  }

 private:
  WatchedTime time_;
  Duration length_{};
};

/// A deadline is noticed later than this only if the machine or this process stood still.
constexpr Duration kLateDeadline = std::chrono::seconds(2);

/// True if the timeout that expired at `deadline` must start again at `now`, because it was noticed
/// late. The process that had to act before the deadline may have stood still as well, for an
/// unknown part of the time.
inline bool must_restart_timeout(Instant deadline, Instant now) {
  return now - deadline > kLateDeadline;
}

}  // namespace muster

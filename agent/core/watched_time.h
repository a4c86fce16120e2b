// The time in which somebody looked: what limits of patience count.
//
// Pure. A machine that was suspended, a virtual machine that was paused and a
// process that was stopped go on later as if nothing had been: in that time
// nobody could have done anything, so it is neither silence nor idleness,
// whatever the clock counts.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "rendezvous/core/time.h"

namespace muster {

class WatchedTime {
 public:
  /// In a longer gap between two looks nobody looked.
  static constexpr int kCountedIntervals = 2;

  /// A look at `now`, of which there is one in each `interval`: the time that
  /// counts since the last one. 0 for the first.
  Duration look(Instant now, Duration interval) {
    const Duration passed =
        last_ ? std::min(now - *last_, kCountedIntervals * interval) : Duration{};
    last_ = now;
    return passed;
  }
  std::optional<Instant> last() const { return last_; }
  /// What follows is watched anew.
  void reset() { last_.reset(); }

 private:
  std::optional<Instant> last_;
};

/// How long somebody has waited, for a limit that counts watched time only. Who waits looks once a
/// second or more often: of a longer gap two seconds count.
class WatchedWait {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);

  explicit WatchedWait(Instant now) { time_.look(now, kInterval); }
  /// Looks: the length of the wait until `now`.
  Duration look(Instant now) { return length_ += time_.look(now, kInterval); }
  /// When to look next, if the wait ends after `limit`.
  Duration until_next_look(Duration limit) const {
    return std::clamp(limit - length_, Duration{}, kInterval);
  }

 private:
  WatchedTime time_;
  Duration length_{};
};

/// A deadline is noticed so late only if nobody could look: the machine or the process stood still.
constexpr Duration kLateDeadline = std::chrono::seconds(2);

/// Whether a limit that ran out at `deadline` has to begin anew at `now`: who was to end by then
/// stood still, too, and nobody knows for how much of the time.
inline bool begins_anew(Instant deadline, Instant now) {
  return now - deadline > kLateDeadline;
}

}  // namespace muster

// The time in which somebody looked: what limits of patience count.
//
// Pure. A machine that was suspended, a virtual machine that was paused and a
// process that was stopped go on later as if nothing had been: in that time
// nobody could have done anything, so it is neither silence nor idleness,
// whatever the clock counts.
#pragma once

#include <algorithm>
#include <optional>

#include "rendezvous/core/time.h"

namespace muster {

class WatchedTime {
 public:
  /// A look at `now`: the time since the last one, but at most `gap_max`, as a
  /// longer gap is time in which nobody looked. 0 for the first.
  Duration look(Instant now, Duration gap_max) {
    const Duration passed = last_ ? std::min(now - *last_, gap_max) : Duration{};
    last_ = now;
    return passed;
  }
  std::optional<Instant> last() const { return last_; }
  /// What follows is watched anew.
  void reset() { last_.reset(); }

 private:
  std::optional<Instant> last_;
};

}  // namespace muster

// Time, as the core sees it: a value that callers hand in, never a question the core asks.

#pragma once

#include <algorithm>
#include <chrono>

namespace muster {

/// A monotonic clock on purpose without now(): core code that tries to read the time does not
/// compile. The shell makes Instants (rendezvous/net/clock.h), tests invent them.
struct MonotonicClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};

using Duration = MonotonicClock::duration;
using Instant = MonotonicClock::time_point;

/// A hundred years: longer waits than this are cut to it, so that no sum with an Instant overflows.
inline constexpr Duration kLongestWait = std::chrono::hours(876'000);

/// The instant `wait` after `now`. A wait may come from outside, and be as long as a Duration
/// holds.
constexpr Instant later(Instant now, Duration wait) {
  return now + std::clamp(wait, Duration::zero(), kLongestWait);
}

}  // namespace muster

// Time, as the core sees it: a value that callers hand in, never a question the core asks.

#pragma once

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

}  // namespace muster

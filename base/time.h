// Time in the core: a value that callers pass in. The core never reads a clock.

#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>

namespace muster {

/// A monotonic clock without now(), so that core code that tries to read the time does not compile.
/// The shell makes Instants (base/system/clock.h); tests use any values.
struct MonotonicClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};

using Duration = MonotonicClock::duration;
using Instant = MonotonicClock::time_point;

/// A hundred years. Longer waits are cut to this, so that no sum with an Instant overflows.
inline constexpr Duration kLongestWait = std::chrono::hours(876'000);

/// The instant `wait` after `now`. A wait may come from outside and have any value of a Duration.
constexpr Instant later(Instant now, Duration wait) {
  return now + std::clamp(wait, Duration::zero(), kLongestWait);
}

/// A wall clock's time, as torchrun writes it into its state: microseconds since 1970, UTC. The
/// shell makes the times of this host. The clocks of nodes differ, so the rules never compare them.
struct WallTime {
  std::int64_t microseconds = 0;
  auto operator<=>(const WallTime&) const = default;
};

}  // namespace muster

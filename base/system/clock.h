// The clocks that the shell reads.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace muster {

/// The monotonic clock, as the core's Instant.
inline Instant now() {
  return Instant(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

/// The same instant, for Asio's timers.
inline std::chrono::steady_clock::time_point to_steady(Instant at) {
  return std::chrono::steady_clock::time_point(at.time_since_epoch());
}

/// The wall clock, for the times that torchrun nodes read. muster decides nothing by it.
inline WallTime wall_now() {
  return {std::chrono::duration_cast<std::chrono::microseconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

/// The same in milliseconds, for reports to people.
inline std::int64_t wall_ms() {
  return wall_now().microseconds / 1000;
}

}  // namespace muster

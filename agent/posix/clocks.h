// The clocks of the shim, which links no Asio.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

#include "rendezvous/core/time.h"

namespace muster {

/// The time since the epoch, for people.
inline std::int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

/// The wall clock minus a clock that nobody can set, and that also counts suspended time.
inline std::int64_t clock_offset_ms() {
  timespec boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &boot);
  return (wall_ns() - boot.tv_sec * 1'000'000'000LL - boot.tv_nsec) / 1'000'000;
}

inline Instant monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Instant(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

inline std::int64_t monotonic_ms() {
  return monotonic_now().time_since_epoch() / std::chrono::milliseconds(1);
}

}  // namespace muster

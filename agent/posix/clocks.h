// The clocks of the shim, which links no Asio.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

#include "rendezvous/core/time.h"

namespace muster {

/// Since the epoch: for people.
inline std::int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
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

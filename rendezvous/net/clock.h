// Where the shell gets its Instants from.

#pragma once

#include <chrono>

#include "rendezvous/core/time.h"

namespace muster {

/// The monotonic clock, as the core's Instant.
inline Instant now() {
  return Instant(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace muster

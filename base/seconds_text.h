// Durations as text in messages for people.

#pragma once

#include <chrono>
#include <string>

#include "base/time.h"

namespace muster {

/// "15 s". Parts of a second are cut off.
inline std::string seconds_text(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace muster

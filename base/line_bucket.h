// Limits the rate of log lines. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace muster {

/// Admits `at_once` lines at once, and one more each `refill`.
class LineBucket {
 public:
  LineBucket(std::int64_t at_once, Duration refill)
      : at_once_(at_once), refill_(refill), lines_(at_once) {}

  bool take(Instant now) {
    const std::int64_t due = (now - refilled_) / refill_;
    if (due > 0) {
      lines_ = std::min(at_once_, lines_ + std::min(due, at_once_));
      refilled_ = now;
    }
    if (lines_ == 0) return false;
    --lines_;
    return true;
  }

 private:
  std::int64_t at_once_;
  Duration refill_;
  std::int64_t lines_;
  Instant refilled_{};
};

}  // namespace muster

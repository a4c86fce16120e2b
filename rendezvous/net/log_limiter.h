// Bounds how many lines strangers can make us write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "rendezvous/core/time.h"

namespace muster {

/// A bucket of lines: so many at once, then so many a second.
class LogLimiter {
 public:
  /// Whether a line may be written at `now`: if so, how many were left out since the last one.
  std::optional<std::uint64_t> admit(Instant now) {
    const auto due = static_cast<std::int64_t>((now - refilled_) / kRefill);
    if (due > 0) {
      lines_ = std::min(kLinesAtOnce, lines_ + std::min(due, kLinesAtOnce));
      refilled_ = now;
    }
    if (lines_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    --lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  static constexpr std::int64_t kLinesAtOnce = 50;
  static constexpr Duration kRefill = std::chrono::milliseconds(100);

  std::int64_t lines_ = kLinesAtOnce;
  std::uint64_t left_out_ = 0;
  Instant refilled_{};
};

}  // namespace muster

// Says when a node that waits repeats for whom it waits: rarer each time.
//
// Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/time.h"

namespace muster {

class WaitReminder {
 public:
  static constexpr Duration kFirst = std::chrono::seconds(10);
  static constexpr Duration kLongest = std::chrono::minutes(10);

  /// The wait has begun, unless it goes on already.
  void begin(Instant now) {
    if (next_) return;
    began_ = now;
    pause_ = kFirst;
    next_ = now + pause_;
  }
  void end() { next_.reset(); }
  std::optional<Instant> next() const { return next_; }
  /// If it is time: how long the wait has lasted. Sets the next time.
  std::optional<Duration> due(Instant now) {
    if (!next_ || now < *next_) return std::nullopt;
    pause_ = std::min(2 * pause_, kLongest);
    next_ = now + pause_;
    return now - began_;
  }

 private:
  Instant began_{};
  Duration pause_ = kFirst;
  std::optional<Instant> next_;
};

}  // namespace muster

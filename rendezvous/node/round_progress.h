// How far the workers of one node have come in its round, and what of that the host was told.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace muster {

class RoundProgress {
 public:
  /// `best_step`: RoundComplete::best_step.
  void begin_round(std::optional<std::int64_t> best_step) {
    *this = {};
    best_step_ = best_step;
  }
  /// A worker has told this step; empty: progress that has no number. `works`: the round goes on.
  /// Returns whether the workers are further than those of earlier rounds for the first time.
  bool advance(std::optional<std::int64_t> step, bool works) {
    if (step && step_ && *step <= *step_) return false;
    if (step) step_ = step;
    // Steps up to the best one only repeat what the workers of earlier rounds have done.
    const bool is_further = !step || !best_step_ || *step > *best_step_;
    return works && is_further && !std::exchange(progressed_, true);
  }
  void mark_sent() { sent_ = step_; }
  /// Whether the host does not know the highest step.
  bool is_unsent() const { return step_ && sent_ != step_; }
  bool progressed() const { return progressed_; }
  const std::optional<std::int64_t>& step() const { return step_; }

 private:
  std::optional<std::int64_t> best_step_;
  bool progressed_ = false;
  std::optional<std::int64_t> step_;  // The highest one.
  std::optional<std::int64_t> sent_;
};

}  // namespace muster

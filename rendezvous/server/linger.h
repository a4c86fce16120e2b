// Decides when an event set should wait for the next event instead of returning to the loop.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace muster {

/// A turn is the work between a call by the loop and the return to it. Waiting inside a turn saves
/// time while events come at short intervals. But if the next event needs other work of this loop
/// first, waiting only delays that work. So waiting is tried after many prompt turns in a row, and
/// less often each time that no event came.
class Linger {
 public:
  /// The longest turn. After it, other work on the loop runs.
  static constexpr Duration kTurn = std::chrono::milliseconds(1);
  /// An event that comes later than this after the last one is not prompt.
  static constexpr Duration kPrompt = std::chrono::milliseconds(1);
  static constexpr int kTurnsFirst = 16;  // Prompt turns in a row before waiting is tried.
  static constexpr int kMaxTurns = 4096;

  /// A turn begins because there are events. Returns whether the turn should wait for more events
  /// after these.
  bool begin_turn(Instant now) {
    prompt_turns_ = silent(now) ? 0 : std::min(prompt_turns_ + 1, kMaxTurns);
    return prompt_turns_ >= wanted_;
  }
  void record_events(Instant now) { last_event_ = now; }
  bool silent(Instant now) const { return now - last_event_ >= kPrompt; }
  /// A turn that waited for events has ended at `now`.
  void end_waiting_turn(Instant now) {
    wanted_ = silent(now) ? std::min(2 * wanted_, kMaxTurns) : kTurnsFirst;
    if (silent(now)) prompt_turns_ = 0;
  }

 private:
  Instant last_event_{};
  int prompt_turns_ = 0;
  int wanted_ = kTurnsFirst;
};

}  // namespace muster

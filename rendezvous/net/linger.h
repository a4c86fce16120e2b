// When a set of events should be waited at for the next one, instead of giving the loop back.
#pragma once

#include <algorithm>

#include "rendezvous/core/time.h"

namespace muster {

/// A turn is what is done between being called by the loop and giving it back. Waiting in it pays
/// while events come one soon after the other. Where the next event needs this very loop first,
/// waiting only holds it up: so it is tried after many prompt turns, and more seldom each time that
/// it was in vain.
class Linger {
 public:
  /// After so long the others on the loop have their turn.
  static constexpr Duration kTurn = std::chrono::milliseconds(1);
  /// What comes later than that is not prompt.
  static constexpr Duration kPrompt = std::chrono::milliseconds(1);
  static constexpr int kTurnsFirst = 16;  // So many prompt turns in a row before waiting is tried.
  static constexpr int kTurnsMost = 4096;

  /// A turn begins, because there are events; says whether to wait for more once they are served.
  bool begins(Instant now) {
    prompt_turns_ = silent(now) ? 0 : std::min(prompt_turns_ + 1, kTurnsMost);
    return prompt_turns_ >= wanted_;
  }
  void had_events(Instant now) { last_event_ = now; }
  bool silent(Instant now) const { return now - last_event_ >= kPrompt; }
  /// A turn in which it was waited ended at `now`.
  void waited(Instant now) {
    wanted_ = silent(now) ? std::min(2 * wanted_, kTurnsMost) : kTurnsFirst;
    if (silent(now)) prompt_turns_ = 0;
  }

 private:
  Instant last_event_{};
  int prompt_turns_ = 0;
  int wanted_ = kTurnsFirst;
};

}  // namespace muster

// How much work the server may do before other clients are served: in one turn of its loop, and for
// one connection in that turn.
//
// Pure. Work is counted in units of about a nanosecond. server_limits.h has the limits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rendezvous/server/server_limits.h"

namespace muster {

inline constexpr std::int64_t kRequestWork = 256;
inline constexpr std::int64_t kNameWork = 64;  // A look-up, a waiting client, a name in a list.
inline constexpr std::int64_t kNativeWork = 5'000;   // Handling a native message, also in its run.
inline constexpr std::int64_t kNativeByteWork = 16;  // Parsing a byte of JSON.
inline constexpr std::int64_t kRenderWork = 4'000;   // Rendering and encoding a node of a state.
inline constexpr std::int64_t kStateWork = 20'000;   // Handling a request for a run's state.
inline constexpr std::int64_t kStateByteWork = 64;   // Decoding and comparing a byte of a state.

class WorkBudget {
 public:
  void begin_turn() { turn_ = kTurnWork; }
  /// However many events a turn has had, it leaves some work for what earlier turns have left.
  void keep_some_for_the_rest() { turn_ = std::max(turn_, 2 * kSliceWork); }
  bool turn_is_used_up() const { return turn_ <= 0; }
  std::int64_t left_in_turn() const { return turn_; }
  /// Counts work that belongs to no slice.
  void spend_of_turn(std::int64_t work) { turn_ -= work; }

  /// A connection is served from here to end_slice(). In a turn that is used up, its slice is
  /// small.
  void begin_slice() { slice_ = slice_begun_ = turn_is_used_up() ? kSmallSliceWork : kSliceWork; }
  void end_slice() { turn_ -= slice_begun_ - slice_; }
  /// Counts work for the connection that is being served.
  void spend(std::int64_t work) { slice_ -= work; }
  /// Whether the connection that is being served must let others go first, before a request that
  /// costs so much: its slice is used up, or the turn is and the request is expensive.
  bool must_yield(std::int64_t work) const {
    return slice_ <= 0 || (turn_is_used_up() && work > kSmallSliceWork);
  }

 private:
  std::int64_t turn_ = 0;         // What all connections may still do in this turn.
  std::int64_t slice_begun_ = 0;  // What the connection that is being served might do at first,
  std::int64_t slice_ = 0;        // and what it may still do.
};

}  // namespace muster

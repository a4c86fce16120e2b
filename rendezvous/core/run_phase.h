// The phases of a run, and which one may follow which.
#pragma once

#include <array>
#include <cstddef>

namespace muster {

/// In the order of the table in docs/rendezvous.md.
enum class RunPhase {
  Recovering,  // The nodes of a round that an earlier life of the host made are coming back.
  Gathering,   // Nodes join.
  Preparing,   // The round has its members; rank 0 empties the workers' store.
  Running,     // Every muster node knows its rank.
  Draining,    // A restart has begun; torchrun nodes are still in the old round.
  Ended,       // For everybody, for good.
};
inline constexpr std::size_t kRunPhases = 6;

/// The round has its members, and nobody else is let in.
constexpr bool is_complete(RunPhase phase) {
  return phase == RunPhase::Preparing || phase == RunPhase::Running || phase == RunPhase::Draining;
}

/// Whether a round in `from` may come into `to`. The end of a run is not a round's: it may come in
/// every phase.
constexpr bool may_follow(RunPhase from, RunPhase to) {
  // Rows: from; columns: to. Both in the order of the enum.
  constexpr std::array<std::array<bool, kRunPhases>, kRunPhases> kTable{{
      /* Recovering */ {false, true, false, true, false, false},
      /* Gathering  */ {true, false, true, false, false, false},
      /* Preparing  */ {false, true, false, true, true, false},
      /* Running    */ {false, true, false, false, true, false},
      /* Draining   */ {false, true, false, true, false, false},
      /* Ended      */ {false, false, false, false, false, false},
  }};
  return kTable[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

}  // namespace muster

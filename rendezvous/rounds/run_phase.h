// The phases of a run, and the allowed transitions.
#pragma once

#include <array>
#include <cstddef>

namespace muster {

/// In the order of the table in docs/rendezvous_rules.md.
enum class RunPhase {
  Recovering,  // The host was restarted, and the nodes of an earlier host's round are resuming.
  Gathering,   // Nodes join.
  Preparing,   // The round has its members; rank 0 empties the workers' store.
  Running,     // Every muster node knows its rank.
  Draining,    // A restart has begun; torchrun nodes are still in the old round.
  Ended,       // The run has ended for all nodes, for good.
};
inline constexpr std::size_t kRunPhases = 6;

/// The round has its members, and no other node is admitted.
constexpr bool is_complete(RunPhase phase) {
  return phase == RunPhase::Preparing || phase == RunPhase::Running || phase == RunPhase::Draining;
}

/// Whether the phase of a round may change from `from` to `to`. The end of a run is not a phase of
/// the round: a run may end in every phase.
constexpr bool may_follow(RunPhase from, RunPhase to) {
  // The rows are `from`, the columns are `to`, both in the order of the enum.
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

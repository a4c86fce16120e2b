// The order in which pairs of nodes test each other: a round-robin tournament by the circle method.
// Pure.
#pragma once

#include <optional>

namespace muster::ctl {

/// The number of rounds in which every two nodes meet once: nodes - 1, or nodes if it is odd.
int pair_rounds(int nodes);

/// The rank that `rank` meets in `round`, both from 0. Nothing: the rank pauses, as one rank of an
/// odd number does in each round. The pairs of a round have no node in common.
std::optional<int> partner_in(int round, int rank, int nodes);

}  // namespace muster::ctl

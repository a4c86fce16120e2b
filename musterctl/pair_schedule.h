// Who tests whom, and when: a round-robin tournament by the circle method. Pure.
#pragma once

#include <optional>

namespace muster::ctl {

/// So many rounds bring every two of `nodes` together once: nodes - 1, or nodes if it is odd.
int pair_rounds(int nodes);

/// Whom `rank` meets in `round`, both from 0. Nothing: it pauses, as one node of an odd number does
/// in each round. The pairs of a round have no node in common.
std::optional<int> partner_in(int round, int rank, int nodes);

}  // namespace muster::ctl

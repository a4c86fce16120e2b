#include "musterctl/pair_schedule.h"

#include "base/check.h"

namespace muster::ctl {

int pair_rounds(int nodes) {
  if (nodes < 2) return 0;
  return nodes % 2 == 0 ? nodes - 1 : nodes;
}

// In round r, two ranks meet if their sum is r modulo the number of rounds. This number is odd, so
// exactly one rank would meet itself. That rank meets the last node, or pauses if the number of
// nodes is odd.
std::optional<int> partner_in(int round, int rank, int nodes) {
  const int rounds = pair_rounds(nodes);
  MUSTER_CHECK(round >= 0 && round < rounds && rank >= 0 && rank < nodes);
  const bool even = nodes % 2 == 0;
  if (even && rank == nodes - 1) {
    // Twice the partner's rank is `round` modulo `rounds`, where (rounds + 1) / 2 is the inverse
    // of 2.
    return static_cast<int>(static_cast<long long>(round) * ((rounds + 1) / 2) % rounds);
  }
  const int partner = (round + rounds - rank) % rounds;
  if (partner != rank) return partner;
  if (even) return nodes - 1;
  return std::nullopt;
}

}  // namespace muster::ctl

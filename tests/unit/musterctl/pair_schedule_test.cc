#include "musterctl/pair_schedule.h"

#include <set>
#include <utility>

#include <catch2/catch.hpp>

namespace muster::ctl::testing {

TEST_CASE("pair schedule: every two nodes meet exactly once, in disjoint pairs",
          "[unit][musterctl]") {
  for (int nodes = 2; nodes <= 65; ++nodes) {
    INFO("nodes " << nodes);
    std::set<std::pair<int, int>> met;
    int pauses = 0;
    for (int round = 0; round < pair_rounds(nodes); ++round) {
      for (int rank = 0; rank < nodes; ++rank) {
        INFO("round " << round << ", rank " << rank);
        const auto partner = partner_in(round, rank, nodes);
        if (!partner) {
          ++pauses;
          continue;
        }
        REQUIRE(*partner >= 0);
        REQUIRE(*partner < nodes);
        REQUIRE(*partner != rank);
        REQUIRE(partner_in(round, *partner, nodes) == rank);
        if (rank < *partner) REQUIRE(met.emplace(rank, *partner).second);
      }
    }
    CHECK(met.size() == static_cast<std::size_t>(nodes) * static_cast<std::size_t>(nodes - 1) / 2);
    CHECK(pauses == (nodes % 2 == 0 ? 0 : nodes));
  }
}

TEST_CASE("pair schedule: the number of rounds grows as the number of nodes", "[unit][musterctl]") {
  CHECK(pair_rounds(1) == 0);
  CHECK(pair_rounds(2) == 1);
  CHECK(pair_rounds(3) == 3);
  CHECK(pair_rounds(4) == 3);
  CHECK(pair_rounds(500) == 499);
}

TEST_CASE("pair schedule: the numbers do not overflow with the most nodes", "[unit][musterctl]") {
  constexpr int kNodes = 1 << 16;
  for (const int round : {0, 1, kNodes / 2, kNodes - 2}) {
    const auto partner = partner_in(round, kNodes - 1, kNodes);
    REQUIRE(partner);
    CHECK(partner_in(round, *partner, kNodes) == kNodes - 1);
  }
}

}  // namespace muster::ctl::testing

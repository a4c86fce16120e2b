// Ids that could be mixed up, each with a type of its own.

#pragma once

#include <compare>
#include <cstdint>

namespace muster {

/// A worker among all workers of the round: RANK, 0 to WORLD_SIZE - 1.
struct GlobalRank {
  int value = 0;
  auto operator<=>(const GlobalRank&) const = default;
};

/// A worker among the workers of one node: LOCAL_RANK, 0 to LOCAL_WORLD_SIZE - 1.
struct LocalRank {
  int value = 0;
  auto operator<=>(const LocalRank&) const = default;
};

/// A node among the nodes of the round: GROUP_RANK, 0 to GROUP_WORLD_SIZE - 1.
struct GroupRank {
  int value = 0;
  auto operator<=>(const GroupRank&) const = default;
};

/// A connection of a client: a small number, which is used again when the connection is over.
struct ConnectionId {
  std::uint32_t value = 0;
  bool operator==(const ConnectionId&) const = default;
};

}  // namespace muster

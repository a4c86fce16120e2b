// From what every node of the round brings to the ranks of all workers.
#pragma once

#include <string>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/core/ids.h"

namespace muster {

/// More workers in one round than anybody has; what a node claims is checked against it.
inline constexpr int kMaxWorldSize = 1 << 24;

/// What a node says about itself before ranks are known: torchrun's role_info.
struct RoleInfo {
  GroupRank group_rank;
  std::string role;
  int local_world_size = 1;
  bool operator==(const RoleInfo&) const = default;
};

/// What a node needs to number its workers: torchrun's assigned_ranks. Worker i of the node has
/// global rank base_global_rank + i, and the same within its role.
struct AssignedRanks {
  GlobalRank base_global_rank;
  int world_size = 1;
  int base_role_rank = 0;
  int role_world_size = 1;
  bool operator==(const AssignedRanks&) const = default;

  GlobalRank global_rank(LocalRank local) const { return {base_global_rank.value + local.value}; }
  int role_rank(LocalRank local) const { return base_role_rank + local.value; }
};

enum class RanksError {
  NoNodes,
  NotAPermutation,    // The group ranks are not 0 to N - 1, each once.
  BadLocalWorldSize,  // Below 1, or more than kMaxWorldSize together.
};

std::string_view describe(RanksError error);

/// The ranks of every node, by group rank; `nodes` may come in any order. Nodes may differ in role
/// and in number of workers. What peers sent may be wrong: then an error, never a wrong world.
boost::system::result<std::vector<AssignedRanks>, RanksError> assign_ranks(
    std::vector<RoleInfo> nodes);

}  // namespace muster

// From what every node of the round says to the ranks of all workers: the check of what peers sent,
// before rendezvous/core/round_ranks.h numbers the workers.
#pragma once

#include <string>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/core/ids.h"
#include "rendezvous/core/round_ranks.h"

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

/// torchrun's assigned_ranks.
using AssignedRanks = WorkerRanks;

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

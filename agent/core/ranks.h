// Computes the ranks of all workers from the messages of the nodes in the round: checks what peers
// sent, before rendezvous/rounds/round_ranks.h numbers the workers.
#pragma once

#include <string>
#include <vector>

#include <boost/system/result.hpp>

#include "base/ids.h"
#include "rendezvous/rounds/round_ranks.h"

namespace muster {

/// The maximum number of workers in one round, above every real job. A node's number of workers is
/// checked against it.
inline constexpr int kMaxWorldSize = 1 << 24;

/// What a node reports about itself before the ranks are known: torchrun's role_info.
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
  BadLocalWorldSize,  // Below 1, or the sum is more than kMaxWorldSize.
};

std::string_view describe(RanksError error);

/// Returns the ranks of every node, by group rank. `nodes` may be in any order. Nodes may differ in
/// role and in number of workers. If a peer sent wrong data, the result is an error, never a wrong
/// world.
boost::system::result<std::vector<AssignedRanks>, RanksError> assign_ranks(
    std::vector<RoleInfo> nodes);

}  // namespace muster

#include "agent/core/ranks.h"

#include <algorithm>
#include <utility>

namespace muster {

std::string_view describe(RanksError error) {
  switch (error) {
    case RanksError::NoNodes:
      return "no node takes part";
    case RanksError::NotAPermutation:
      return "the nodes' group ranks are not 0 to N-1, each once";
    case RanksError::BadLocalWorldSize:
      return "a node's number of workers is out of range";
  }
  return "";
}

boost::system::result<std::vector<AssignedRanks>, RanksError> assign_ranks(
    std::vector<RoleInfo> nodes) {
  if (nodes.empty()) return RanksError::NoNodes;
  std::sort(nodes.begin(), nodes.end(),
            [](const RoleInfo& a, const RoleInfo& b) { return a.group_rank < b.group_rank; });

  std::vector<NodeWorkers> by_rank;
  int world_size = 0;
  for (RoleInfo& node : nodes) {
    if (node.group_rank.value != static_cast<int>(by_rank.size()))
      return RanksError::NotAPermutation;
    if (node.local_world_size < 1 || node.local_world_size > kMaxWorldSize - world_size)
      return RanksError::BadLocalWorldSize;
    world_size += node.local_world_size;
    by_rank.push_back({.role = std::move(node.role), .local_world_size = node.local_world_size});
  }
  return assign_worker_ranks(by_rank);
}

}  // namespace muster

#include "agent/core/ranks.h"

#include <algorithm>
#include <map>

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

  std::vector<AssignedRanks> result;
  std::map<std::string, int> role_sizes;
  int world_size = 0;
  for (const RoleInfo& node : nodes) {
    if (node.group_rank.value != static_cast<int>(result.size()))
      return RanksError::NotAPermutation;
    if (node.local_world_size < 1 || node.local_world_size > kMaxWorldSize - world_size)
      return RanksError::BadLocalWorldSize;
    int& role_size = role_sizes[node.role];
    result.push_back({.base_global_rank = {world_size}, .base_role_rank = role_size});
    world_size += node.local_world_size;
    role_size += node.local_world_size;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    result[i].world_size = world_size;
    result[i].role_world_size = role_sizes[nodes[i].role];
  }
  return result;
}

}  // namespace muster

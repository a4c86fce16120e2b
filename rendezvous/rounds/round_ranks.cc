#include "rendezvous/rounds/round_ranks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"

namespace muster {
namespace {

constexpr std::size_t kFree = std::numeric_limits<std::size_t>::max();

auto order_of(const RankCandidate& node) {
  return std::make_tuple(node.preferred.value_or(std::numeric_limits<int>::max()),
                         !node.hosts_rendezvous, !node.native, std::cref(node.name));
}

}  // namespace

std::vector<std::size_t> assign_group_ranks(const std::vector<RankCandidate>& candidates) {
  const std::size_t count = candidates.size();
  std::vector<std::size_t> by_rank(count, kFree);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < count; ++i) {
    const auto last = candidates[i].last_rank;
    if (last && *last >= 0 && static_cast<std::size_t>(*last) < count &&
        by_rank[static_cast<std::size_t>(*last)] == kFree)
      by_rank[static_cast<std::size_t>(*last)] = i;
    else
      others.push_back(i);
  }
  std::sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) {
    return order_of(candidates[a]) < order_of(candidates[b]);
  });
  // Torchrun nodes learn the address of a new rank 0 only if that is a muster node, which publishes
  // it.
  const bool first_round = others.size() == count;
  if (!first_round && by_rank[0] == kFree) {
    const auto native = std::find_if(others.begin(), others.end(),
                                     [&](std::size_t i) { return candidates[i].native; });
    if (native != others.end()) std::rotate(others.begin(), native, native + 1);
  }
  auto next = others.begin();
  for (std::size_t& holder : by_rank)
    if (holder == kFree) holder = *next++;
  MUSTER_CHECK(next == others.end());
  return by_rank;
}

std::vector<WorkerRanks> assign_worker_ranks(const std::vector<NodeWorkers>& nodes) {
  std::vector<WorkerRanks> ranks;
  std::map<std::string, int> by_role;
  int world = 0;
  for (const NodeWorkers& node : nodes) {
    int& role = by_role[node.role];
    ranks.push_back({.base_global_rank = {world}, .base_role_rank = role});
    world += node.local_world_size;
    role += node.local_world_size;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ranks[i].world_size = world;
    ranks[i].role_world_size = by_role[nodes[i].role];
  }
  return ranks;
}

}  // namespace muster

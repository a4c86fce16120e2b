// Who gets which rank in a round.
//
// Ranks are sticky: who had one keeps it, and who comes instead of a missing node takes that
// node's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/ids.h"
#include "rendezvous/core/rendezvous_state.h"

namespace muster {

/// A member of the round to be numbered.
struct RankCandidate {
  NodeName name;
  bool native = false;  // A muster node: as rank 0 it publishes its address every round.
  bool hosts_rendezvous = false;
  std::optional<int> preferred;  // --node-rank, or what the scheduler says. Only an order.
  std::optional<int> last_rank;  // In the round before this one.
};

/// The indices of `candidates` by group rank. Without earlier ranks: preferred ones first, then the
/// rendezvous' host, then muster nodes, then by name as torchrun does.
std::vector<std::size_t> assign_group_ranks(const std::vector<RankCandidate>& candidates);

/// What a node needs to number its workers, if every node of the round is known: worker i has
/// global rank base_global_rank + i, and the same within its role.
struct WorkerRanks {
  GlobalRank base_global_rank;
  int world_size = 1;
  int base_role_rank = 0;
  int role_world_size = 1;
  bool operator==(const WorkerRanks&) const = default;

  GlobalRank global_rank(LocalRank local) const { return {base_global_rank.value + local.value}; }
  int role_rank(LocalRank local) const { return base_role_rank + local.value; }
};

struct NodeWorkers {
  std::string role;
  int local_world_size = 1;
};

/// `nodes` by group rank.
std::vector<WorkerRanks> assign_worker_ranks(const std::vector<NodeWorkers>& nodes);

}  // namespace muster

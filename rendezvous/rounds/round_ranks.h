// The ranks of the nodes and workers of a round.
//
// Ranks are sticky: a node that had a rank keeps it, and a new node gets the rank of a missing one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "rendezvous/rounds/node_name.h"

namespace muster {

/// A member of the round that needs a rank.
struct RankCandidate {
  NodeName name;
  bool native = false;  // A muster node: as rank 0 it publishes its address in every round.
  bool hosts_rendezvous = false;
  std::optional<int> preferred;  // --node-rank, or the scheduler's number. Only used for the order.
  std::optional<int> last_rank;  // In the previous round.
};

/// The indices of `candidates` by group rank. Nodes without an earlier rank are ordered by their
/// preferred rank, then the host of the rendezvous, then muster nodes, then by name as in torchrun.
std::vector<std::size_t> assign_group_ranks(const std::vector<RankCandidate>& candidates);

/// The numbers with which a node numbers its workers: worker i has the global rank
/// base_global_rank + i, and the role rank base_role_rank + i. Only known if the numbers of workers
/// of all nodes of the round are known.
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

/// `nodes` and the result are in the order of group ranks.
std::vector<WorkerRanks> assign_worker_ranks(const std::vector<NodeWorkers>& nodes);

}  // namespace muster

// Judges the results of the tests between nodes, and shows them to people and programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "musterctl/doctor.h"
#include "musterctl/peer_facts.h"

namespace muster::ctl {

/// The results of one node from the tests of all its pairs.
struct PairFacts {
  int nodes = 0;                      // The number of nodes that were to meet.
  std::string endpoint;               // Where they were to meet.
  bool no_torch = false;              // The user wants no all-reduce.
  std::optional<NodeFacts> own = {};  // Nothing: the nodes have not met.
  std::vector<PeerFacts> peers = {};
  bool complete = false;   // Every pair of this node has had its turn.
  std::string error = {};  // Why not.
};

/// The checks are in the order of the peers, and those of each peer in the same order.
std::vector<Check> judge_pairs(const PairFacts& facts);
/// A table with a row for each peer; "-" stands for an unknown value.
std::string pairs_text(const PairFacts& facts);
/// A JSON array with an object for each peer.
std::string pairs_json(const PairFacts& facts);

}  // namespace muster::ctl

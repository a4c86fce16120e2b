// What nodes have found out about each other, judged, and as text for people and programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "musterctl/doctor.h"
#include "musterctl/peer_facts.h"

namespace muster::ctl {

/// What one node brings home from the tests of all pairs.
struct PairFacts {
  int nodes = 0;                      // As many were to meet.
  std::string endpoint;               // Where.
  std::optional<NodeFacts> own = {};  // Nothing: they have not met.
  std::vector<PeerFacts> peers = {};
  bool whole = false;      // Every pair of this node has had its turn.
  std::string error = {};  // Why not.
};

/// In the order of the peers, and for each the same order.
std::vector<Check> judge_pairs(const PairFacts& facts);
/// A row for each peer, as far as it is known.
std::string pairs_text(const PairFacts& facts);
/// A JSON array with an object for each peer.
std::string pairs_json(const PairFacts& facts);

}  // namespace muster::ctl

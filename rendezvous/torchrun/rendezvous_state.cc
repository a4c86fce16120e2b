#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

bool NodeSet::operator==(const NodeSet& other) const {
  if (nodes_.size() != other.nodes_.size()) return false;
  if (nodes_ == other.nodes_) return true;
  auto mine = nodes_;
  auto theirs = other.nodes_;
  std::sort(mine.begin(), mine.end());
  std::sort(theirs.begin(), theirs.end());
  return mine == theirs;
}

}  // namespace muster

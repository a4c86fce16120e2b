#include "rendezvous/core/rendezvous_state.h"

namespace muster {

std::string to_string(const NodeName& name) {
  return name.addr + "_" + std::to_string(name.pid) + "_" + std::to_string(name.local_id);
}

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

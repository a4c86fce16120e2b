#include "rendezvous/node/known_host.h"

#include <algorithm>
#include <utility>

namespace muster {

bool MetHost::differs_from(const MetHost& other) const {
  return !state_id.empty() && !other.state_id.empty() && state_id != other.state_id;
}

void KnownHost::meet(MetHost host) {
  host_ = std::move(host);
}

std::string KnownHost::why_not(const MetHost& found, std::span<const std::string> places) const {
  if (!host_ || found.place == host_->place || !host_->differs_from(found)) return {};
  if (std::find(places.begin(), places.end(), host_->place) == places.end()) return {};
  return "the host at " + found.place + " does not share the state of the one at " + host_->place +
         ", where this node was, and knows nothing of its round; this node waits for a host that "
         "does";
}

std::string why_not_both(const MetHost& one, const MetHost& other) {
  if (one.place == other.place || !one.differs_from(other)) return {};
  return "the hosts at " + one.place + " and " + other.place +
         " do not share their state, so the nodes of one run could meet at both and become two "
         "worlds; give all musterds the same --state=etcd://..., or name one of them only";
}

}  // namespace muster

// A node that left its run before it had finished. The others may wait for another node in its
// place.
#pragma once

#include <string>

#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/time.h"

namespace muster {

struct LostNode {
  NodeName name;
  int rank = 0;
  std::string why;
  Instant at{};
  bool proxied = false;  // NodeJoined::proxied.
};

}  // namespace muster

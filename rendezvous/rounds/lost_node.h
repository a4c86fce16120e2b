// A node that left its run before it had finished. The others may wait for another node in its
// place.
#pragma once

#include <string>

#include "base/time.h"
#include "rendezvous/rounds/node_name.h"

namespace muster {

struct LostNode {
  NodeName name;
  int rank = 0;
  std::string why;
  Instant at{};
  bool proxied = false;  // NodeJoined::proxied.
};

}  // namespace muster

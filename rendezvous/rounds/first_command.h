// The command of the first node of a role: other nodes' commands are compared with it.
#pragma once

#include <string>

#include "rendezvous/rounds/node_name.h"

namespace muster {

struct FirstCommand {
  std::string digest;
  NodeName node;
  bool knows = false;  // The node has been told that another node's command differs.
};

}  // namespace muster

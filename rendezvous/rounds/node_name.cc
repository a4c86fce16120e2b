#include "rendezvous/rounds/node_name.h"

namespace muster {

std::string to_string(const NodeName& name) {
  return name.addr + "_" + std::to_string(name.pid) + "_" + std::to_string(name.local_id);
}

}  // namespace muster

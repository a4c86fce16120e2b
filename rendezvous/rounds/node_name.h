// The name of a node in a rendezvous.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace muster {

/// A node, as torchrun names it. The node can be reached at `addr`: that of rank 0 becomes
/// MASTER_ADDR. The order is torchrun's: by code point, then by number.
struct NodeName {
  std::string addr;
  std::int64_t pid = 0;
  std::int64_t local_id = 0;
  auto operator<=>(const NodeName&) const = default;
};

/// "addr_pid_localid", as torchrun prints it.
std::string to_string(const NodeName& name);

}  // namespace muster

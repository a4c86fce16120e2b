// Whether the rendezvous' endpoint is this machine, from what the resolver and the kernel say.
#pragma once

#include <string>
#include <vector>

namespace muster {

/// Addresses are numeric and all spelled alike (rendezvous/net/name_lookup.h).
struct HostFacts {
  std::string hostname;                         // gethostname()
  std::string own_canonical;                    // What the resolver calls it.
  std::vector<std::string> own_addresses;       // The hostname's.
  std::string endpoint_literal;                 // The endpoint's host, if it is an address.
  bool endpoint_is_loopback = false;            // That address.
  std::vector<std::string> endpoint_addresses;  // The endpoint's host's.
  std::vector<std::string> interface_addresses;
};

enum class HostMatch {
  Here,         // torchrun on this machine would say so, too: it hosts.
  OnInterface,  // An interface has the address. torchrun does not look there, and may not host.
  Elsewhere,
};

/// torchrun 2.13's order and tests (elastic/rendezvous/utils.py), then the interfaces.
HostMatch match_host(const std::string& endpoint_host, const HostFacts& facts);

/// The address under which other nodes reach this one, as far as one can know: what was asked for,
/// otherwise our end of the connection with the store. If that is a loopback address though the
/// store's is not, the store is on this machine, and the others reach it by the endpoint's name.
std::string node_address(const std::string& local_addr, const std::string& endpoint_host,
                         const std::string& connection_address, bool connection_is_loopback);

}  // namespace muster

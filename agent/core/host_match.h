// Decides whether the rendezvous' endpoint is this machine, from facts of the resolver and the
// kernel.
#pragma once

#include <string>
#include <vector>

namespace muster {

/// Addresses are numeric and in one canonical form (base/net/name_lookup.h).
struct HostFacts {
  std::string hostname;                         // gethostname()
  std::string own_canonical;                    // The resolver's canonical name for the hostname.
  std::vector<std::string> own_addresses;       // The addresses of the hostname.
  std::string endpoint_literal;                 // The endpoint's host, if it is an address.
  bool endpoint_is_loopback = false;            // endpoint_literal is a loopback address.
  std::vector<std::string> endpoint_addresses;  // The addresses of the endpoint's host.
  std::vector<std::string> interface_addresses;
};

enum class HostMatch {
  Here,         // The endpoint is this machine by torchrun's own tests: torchrun would host here.
  OnInterface,  // An interface has the address. torchrun does not check that, and may not host.
  Elsewhere,
};

/// Makes torchrun 2.13's tests in its order (elastic/rendezvous/utils.py), then checks the
/// interfaces.
HostMatch match_host(const std::string& endpoint_host, const HostFacts& facts);

/// The best known address under which other nodes reach this one: --local-addr if it was given,
/// otherwise the local address of the connection to the store. If that is a loopback address though
/// the store's is not, the store is on this machine, and other nodes reach it by the endpoint's
/// name.
std::string node_address(const std::string& local_addr, const std::string& endpoint_host,
                         const std::string& connection_address, bool connection_is_loopback);

}  // namespace muster

#include "agent/core/host_match.h"

#include <algorithm>

namespace muster {
namespace {

bool contains(const std::vector<std::string>& addresses, const std::string& address) {
  return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
}

bool overlap(const std::vector<std::string>& some, const std::vector<std::string>& others) {
  return std::any_of(some.begin(), some.end(),
                     [&](const std::string& address) { return contains(others, address); });
}

}  // namespace

HostMatch match_host(const std::string& endpoint_host, const HostFacts& facts) {
  if (endpoint_host == "localhost" || facts.endpoint_is_loopback) return HostMatch::Here;
  if (endpoint_host.empty()) return HostMatch::Elsewhere;
  if (endpoint_host == facts.hostname) return HostMatch::Here;
  const bool named = !facts.own_addresses.empty() && endpoint_host == facts.own_canonical;
  const bool literal =
      !facts.endpoint_literal.empty() && contains(facts.own_addresses, facts.endpoint_literal);
  if (named || literal || overlap(facts.own_addresses, facts.endpoint_addresses))
    return HostMatch::Here;
  const bool on_interface = (!facts.endpoint_literal.empty() &&
                             contains(facts.interface_addresses, facts.endpoint_literal)) ||
                            overlap(facts.endpoint_addresses, facts.interface_addresses);
  return on_interface ? HostMatch::OnInterface : HostMatch::Elsewhere;
}

std::string node_address(const std::string& local_addr, const std::string& endpoint_host,
                         const std::string& connection_address, bool connection_is_loopback) {
  if (!local_addr.empty()) return local_addr;
  if (connection_address.empty() || connection_is_loopback) return endpoint_host;
  return connection_address;
}

}  // namespace muster

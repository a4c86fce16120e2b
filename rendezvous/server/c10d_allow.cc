#include "rendezvous/server/c10d_allow.h"

#include <algorithm>
#include <optional>

#include "base/printable_text.h"
#include "rendezvous/rounds/limits.h"

namespace muster {

namespace ip = boost::asio::ip;
using boost::system::error_code;

namespace {

/// Returns false if the word is neither an address nor a network.
bool add_network(C10dAllow& allow, const std::string& word) {
  const bool is_address = word.find('/') == std::string::npos;
  error_code ec;
  const auto v4 = ip::make_network_v4(is_address ? word + "/32" : word, ec);
  if (!ec) {
    allow.networks_v4.push_back(v4.canonical());
    return true;
  }
  const auto v6 = ip::make_network_v6(is_address ? word + "/128" : word, ec);
  if (ec) return false;
  allow.networks_v6.push_back(v6.canonical());
  return true;
}

bool add_word(C10dAllow& allow, const std::string& word) {
  if (word == "loopback")
    allow.loopback = true;
  else if (word == "members")
    allow.members = true;
  else
    return add_network(allow, word);
  return true;
}

bool contains(const ip::network_v4& network, const ip::address_v4& address) {
  return ip::network_v4(address, network.prefix_length()).canonical() == network;
}
bool contains(const ip::network_v6& network, const ip::address_v6& address) {
  return ip::network_v6(address, network.prefix_length()).canonical() == network;
}

template <typename Network, typename Address>
bool any_contains(const std::vector<Network>& networks, const Address& address) {
  return std::any_of(networks.begin(), networks.end(),
                     [&](const Network& network) { return contains(network, address); });
}

}  // namespace

bool C10dAllow::lists(const ip::address& address) const {
  if (any) return true;
  if (loopback && address.is_loopback()) return true;
  if (address.is_v4()) return any_contains(networks_v4, address.to_v4());
  // The scope id of a link-local address is ignored, because networks are written without one.
  return any_contains(networks_v6, ip::address_v6(address.to_v6().to_bytes()));
}

bool C10dDoor::admits(const ip::address& address) const {
  if (!allow_ || allow_->lists(address)) return true;
  return allow_->members && (members_.contains(address) || introduced_.contains(address));
}

bool C10dDoor::admits_to_run(const ip::address& address, std::string_view run) const {
  if (!allow_ || allow_->lists(address)) return true;
  const auto known = members_.find(address);
  return known != members_.end() && known->second.contains(run);
}

std::string_view C10dDoor::only_run_at(const ip::address& address) const {
  const auto known = members_.find(address);
  if (known == members_.end() || known->second.size() != 1) return {};
  return known->second.begin()->first;
}

void C10dDoor::left(const ip::address& address, const std::string& run) {
  const auto known = members_.find(address);
  if (known == members_.end()) return;
  const auto nodes = known->second.find(run);
  if (nodes != known->second.end() && --nodes->second == 0) known->second.erase(nodes);
  if (known->second.empty()) members_.erase(known);
}

void C10dDoor::introduced(const ip::address& address) {
  if (introduced_.size() < kMaxMembers) introduced_.insert(address);
}

boost::system::result<C10dAllow, C10dAllowError> parse_c10d_allow(std::string_view text) {
  C10dAllow allow{.text = std::string(text)};
  if (text == "off") return allow;
  allow.any = text == "any";
  if (allow.any) return allow;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word(text.substr(begin, end - begin));
    begin = end + 1;
    if (!add_word(allow, word))
      return C10dAllowError{"'" + printable_text(word) +
                            "' is no address and no network; give off, any, or a list of loopback, "
                            "members, addresses (10.0.0.7) and networks (10.0.0.0/8)"};
    if (allow.networks_v4.size() + allow.networks_v6.size() > kMaxC10dNetworks)
      return C10dAllowError{"it names more than " + std::to_string(kMaxC10dNetworks) + " networks"};
  }
  return allow;
}

C10dAllow service_c10d_allow(bool has_token) {
  if (!has_token) return {.text = "any", .any = true};
  return {.text = "members", .members = true};
}

C10dAllow agent_c10d_allow(bool has_token) {
  if (!has_token) return service_c10d_allow(has_token);
  return {.text = "members,loopback", .loopback = true, .members = true};
}

}  // namespace muster

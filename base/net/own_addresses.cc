#include "base/net/own_addresses.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// Strangers must not make the server ask the kernel for each of their connections.
constexpr Duration kAskAgainAfter = std::chrono::seconds(1);

}  // namespace

std::vector<asio::ip::address> interface_addresses() {
  std::vector<asio::ip::address> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      asio::ip::address_v4::bytes_type bytes{};
      std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr,
                  bytes.size());
      addresses.emplace_back(asio::ip::address_v4(bytes));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      asio::ip::address_v6::bytes_type bytes{};
      std::memcpy(bytes.data(), &v6->sin6_addr, bytes.size());
      addresses.emplace_back(asio::ip::address_v6(bytes, v6->sin6_scope_id));
    }
  }
  return addresses;
}

bool OwnPeers::admits(const asio::ip::address& peer) {
  if (peer.is_loopback()) return true;
  const auto known = [&] { return std::find(known_.begin(), known_.end(), peer) != known_.end(); };
  const Instant at = now();
  // An address may have moved to another machine, so the list counts for this time only.
  if (known_at_ != Instant{} && at - known_at_ < kAskAgainAfter) return known();
  known_ = interface_addresses();
  known_at_ = at;
  return known();
}

std::function<bool(const asio::ip::address&)> only_this_machine() {
  return [peers = OwnPeers()](const asio::ip::address& peer) mutable { return peers.admits(peer); };
}

}  // namespace muster

// The addresses of this machine's interfaces.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include "base/time.h"

namespace muster {

/// The addresses of all interfaces, link-local ones with their scope. Empty if the kernel does not
/// tell them.
std::vector<boost::asio::ip::address> interface_addresses();

/// Admits the peers of a server that only this machine may use, at any of its addresses. A packet
/// that comes from outside with an address of this machine is dropped by the kernel, so the peer's
/// address proves where it is. An IPv4 address must be given as unmapped() returns it.
class OwnPeers {
 public:
  bool admits(const boost::asio::ip::address& peer);

 private:
  std::vector<boost::asio::ip::address> known_;
  Instant known_at_{};
};

/// OwnPeers for StoreServerOptions::admit.
std::function<bool(const boost::asio::ip::address&)> only_this_machine();

}  // namespace muster

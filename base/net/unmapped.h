// One form for the addresses of IPv4 peers.
#pragma once

#include <boost/asio/ip/address.hpp>

namespace muster {

/// Turns an IPv4-mapped IPv6 address into the IPv4 address. Returns other addresses unchanged.
inline boost::asio::ip::address unmapped(const boost::asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
}

}  // namespace muster

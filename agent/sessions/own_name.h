// A name of this machine that can stand for its IPv6 address.
#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>

namespace muster {

/// A name that a script can write into a URL such as tcp://MASTER_ADDR:MASTER_PORT, where an IPv6
/// address without brackets is none. "localhost" for ::1, and this machine's name for its other
/// addresses, if the resolver leads from the name to the address, and not to loopback. Otherwise
/// `address` itself, and always if that is no IPv6 address. Takes a second at most.
boost::asio::awaitable<std::string> name_for_url(std::string address);

}  // namespace muster

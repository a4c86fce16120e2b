// Names to addresses, off the loop, and not for longer than asked for.
//
// Asio's resolver would do one look-up after the other: behind one that nobody answers all others
// wait, and so does the end of the program.
#pragma once

#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/core/time.h"

namespace muster {

struct NameLookup {
  std::vector<std::string> addresses;  // Numeric, each once, in the resolver's order.
  std::string canonical;               // What the resolver calls it; empty if it says nothing.
  boost::system::error_code error;     // Why there are none.
};

/// A numeric address is its own only address. A look-up that takes longer than `limit` is
/// abandoned (with StoreErrc::ResolveTimedOut): it ends on its own, on a thread of its own.
boost::asio::awaitable<NameLookup> look_up(std::string name, Duration limit);

/// As asio prints it, an IPv4 address within an IPv6 one as IPv4; empty if `text` is no address.
std::string normal_address(const std::string& text);
bool is_loopback_address(const std::string& text);

}  // namespace muster

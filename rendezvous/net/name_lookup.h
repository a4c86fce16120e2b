// Resolves names to addresses outside the loop, with a time limit.
//
// Asio's resolver does one look-up after the other. If no server answers one look-up, all others
// wait, and so does the end of the program.
#pragma once

#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/core/time.h"

namespace muster {

struct NameLookup {
  std::vector<std::string> addresses;  // Numeric, without duplicates, in the resolver's order.
  std::string canonical;               // The resolver's canonical name. Empty: unknown.
  boost::system::error_code error;     // Why there are no addresses.
};

/// Resolves a name. The result for a numeric address is that address. A look-up that takes longer
/// than `limit` fails with StoreErrc::ResolveTimedOut. Its thread is left behind and ends later.
boost::asio::awaitable<NameLookup> look_up(std::string name, Duration limit);

/// The address in the form in which Asio prints it, an IPv4-mapped one as IPv4. Empty if `text` is
/// no address.
std::string normal_address(const std::string& text);
bool is_loopback_address(const std::string& text);

}  // namespace muster

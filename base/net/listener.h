// Listening sockets: created from addresses, or inherited from the process that started this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include "base/system/owned_fd.h"

namespace muster {

/// Why listening has failed. what() is a sentence for the user.
struct ListenError {
  // What failed: a system call, "pthread_create", "event loop", or "parse".
  std::string call;
  std::string address;  // The address as given, or [::] with the port.
  std::uint16_t port = 0;
  boost::system::error_code code;

  std::string what() const;
};

/// Address and port as people write them: [::1]:80, 127.0.0.1:80. An IPv4 peer of an IPv6 socket
/// is written as an IPv4 address.
std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);
/// The same for a comparison with what another machine sees: without the scope of a link-local
/// address. Empty if the endpoint is unknown.
std::string end_text(const boost::asio::ip::tcp::endpoint& endpoint);

struct Listener {
  OwnedFd fd;
  boost::asio::ip::tcp::endpoint endpoint;  // The bound endpoint. Its port is never 0.
};

using Listeners = boost::system::result<std::vector<Listener>, ListenError>;

/// Binds and listens on each address at `port`. Addresses are numeric. Without addresses: every
/// interface, with IPv6 and IPv4 on one socket if the host has IPv6. With port 0 the kernel chooses
/// one port for all of them. Accepted sockets inherit TCP_NODELAY and keep-alive.
Listeners listen_on(const std::vector<std::string>& addresses, std::uint16_t port);
/// Does the same for descriptors that are already bound, whether they listen or not. Takes
/// ownership of them, also on failure.
Listeners take_over(const std::vector<int>& descriptors);

}  // namespace muster

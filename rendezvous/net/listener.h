// Listening sockets: made from addresses, or taken over from whoever started us.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/net/owned_fd.h"

namespace muster {

/// What kept us from listening; what() is a sentence for the person who asked for it.
struct ListenError {
  std::string call;     // The system call, or "parse".
  std::string address;  // As given, or [::] with the port.
  std::uint16_t port = 0;
  boost::system::error_code code;

  std::string what() const;
};

/// Address and port as people write them: [::1]:80, 127.0.0.1:80; an IPv4 peer of an IPv6 socket as
/// the IPv4 address that it is.
std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);
/// An IPv4 address that came through an IPv6 socket, as IPv4; any other as it is.
boost::asio::ip::address unmapped(const boost::asio::ip::address& address);

struct Listener {
  OwnedFd fd;
  boost::asio::ip::tcp::endpoint endpoint;  // As bound: the port is never 0.
};

using Listeners = boost::system::result<std::vector<Listener>, ListenError>;

/// Binds and listens on each address (numeric; nothing: every interface, IPv6 and IPv4 on one
/// socket where the host has IPv6) at `port`; 0 lets the kernel choose one for all of them.
/// Accepted sockets inherit TCP_NODELAY and keep-alive.
Listeners listen_on(const std::vector<std::string>& addresses, std::uint16_t port);
/// The same for descriptors that are bound already, listening or not. They are owned from now on,
/// also on failure.
Listeners take_over(const std::vector<int>& descriptors);

}  // namespace muster

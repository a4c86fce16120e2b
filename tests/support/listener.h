// A listening socket for StoreServerOptions::descriptors.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

namespace muster::testing {

/// Returns a socket that listens at a port of 127.0.0.1 chosen by the kernel. The kernel buffers
/// little unread data for its connections. Otherwise it would buffer megabytes, for which a server
/// with sanitizers on a busy machine takes a minute.
inline int listener_with_little_room() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int little = 4096;
  REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

}  // namespace muster::testing

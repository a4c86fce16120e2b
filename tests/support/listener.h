// A socket to listen at, for StoreServerOptions::descriptors.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

namespace muster::testing {

/// At a port of 127.0.0.1 that the kernel picks. Its connections have little room in the kernel for
/// what is unread: else that is megabytes, and a sanitized server on a busy machine takes a minute
/// to answer so much.
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

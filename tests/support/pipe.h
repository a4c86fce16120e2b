// A pipe whose reading end does not block.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>

#include <catch2/catch.hpp>

#include "base/system/owned_fd.h"

namespace muster::testing {

struct Pipe {
  Pipe() {
    std::array<int, 2> fds{};
    REQUIRE(::pipe2(fds.data(), O_CLOEXEC) == 0);
    read_end = OwnedFd(fds[0]);
    write_end = OwnedFd(fds[1]);
    ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  }
  std::string read_all() {
    std::string text;
    std::array<char, 65536> buffer;
    for (ssize_t n = 0; (n = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(n));
    return text;
  }
  OwnedFd read_end;
  OwnedFd write_end;
};

}  // namespace muster::testing

#include "agent/logs/pipe_growth.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include <catch2/catch.hpp>

#include "base/system/owned_fd.h"

namespace muster {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> fds{};
    REQUIRE(::pipe2(fds.data(), O_CLOEXEC) == 0);
    read_end = OwnedFd(fds[0]);
    write_end = OwnedFd(fds[1]);
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(::fcntl(read_end.get(), F_GETPIPE_SZ));
  }
  OwnedFd read_end;
  OwnedFd write_end;
};

/// Uses up this process's descriptors: only `left` more can be opened.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t left) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit limit{300, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (;;) {
      const int fd = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
      if (fd < 0) break;
      taken_.emplace_back(fd);
    }
    taken_.resize(taken_.size() - left);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<OwnedFd> taken_;
};

TEST_CASE("pipe_growth: a pipe stays large if there are no descriptors to look for pages",
          "[unit][agent]") {
  if (user_pipe_pages() == 0) return;  // Nothing is looked for.
  const Pipe pipe;
  resize_pipe(pipe.read_end.get(), kPipeBytesMax);
  const std::size_t grown = pipe.bytes();
  if (grown <= kPipeBytesUsual) return;  // This user's pages are used up.
  for (const std::size_t left : {0, 1, 2, 3}) {
    const FewDescriptors few(left);
    PipeReserve reserve;
    reserve.keep(pipe.read_end.get(), kPipeBytesMax);
    CHECK(pipe.bytes() == grown);
  }
}

TEST_CASE("pipe_growth: a pipe stays large while its user's pages are not used up",
          "[unit][agent]") {
  if (user_pipe_pages() == 0) return;  // Nothing is looked for.
  // Other programs of the user may have many pages for a while.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool stays = false;
  while (!stays && std::chrono::steady_clock::now() < end) {
    const Pipe pipe;
    resize_pipe(pipe.read_end.get(), kPipeBytesMax);
    const std::size_t grown = pipe.bytes();
    PipeReserve reserve;
    reserve.keep(pipe.read_end.get(), kPipeBytesMax);
    stays = grown > kPipeBytesUsual && pipe.bytes() == grown;
  }
  CHECK(stays);
}

TEST_CASE("pipe_growth: a pipe that should be small stays small", "[unit][agent]") {
  const Pipe pipe;
  resize_pipe(pipe.read_end.get(), 2 * kPipeBytesMin);
  PipeReserve reserve;
  for (int i = 0; i < 3; ++i) {
    reserve.keep(pipe.read_end.get(), 2 * kPipeBytesMin);
    CHECK(pipe.bytes() <= std::max<std::size_t>(2 * kPipeBytesMin, ::sysconf(_SC_PAGESIZE)));
    reserve.begin_attempt();
  }
}

}  // namespace
}  // namespace muster

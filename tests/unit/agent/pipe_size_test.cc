#include "agent/core/pipe_size.h"

#include <algorithm>
#include <cstddef>

#include <catch2/catch.hpp>

namespace muster {
namespace {

constexpr std::size_t kKiB = 1024;

TEST_CASE("pipe_size: few workers have large pipes, many leave the user's pages to others",
          "[unit][agent]") {
  CHECK(pipe_bytes(2, kJobsWithFiles, 16384, 4096) == 1024 * kKiB);
  CHECK(pipe_bytes(16, kJobsWithFiles, 16384, 4096) == 512 * kKiB);
  CHECK(pipe_bytes(20, kJobsWithFiles, 16384, 4096) == 256 * kKiB);
  CHECK(pipe_bytes(160, kJobsWithFiles, 16384, 4096) == 64 * kKiB);
  CHECK(pipe_bytes(20000, kJobsWithFiles, 16384, 4096) == 64 * kKiB);
  CHECK(pipe_bytes(4, kJobsWithFiles, 1024, 4096) == 128 * kKiB);
  CHECK(pipe_bytes(8, kJobsWithFiles, 16384, 65536) == 1024 * kKiB);
  CHECK(pipe_bytes(0, kJobsWithFiles, 16384, 4096) == 1024 * kKiB);
  CHECK(pipe_bytes(16, kJobsWithConsole, 16384, 4096) == 1024 * kKiB);
  CHECK(pipe_bytes(17, kJobsWithConsole, 16384, 4096) == 512 * kKiB);
  CHECK(pipe_bytes(1000, kJobsWithFiles, 0, 4096) == 1024 * kKiB);
}

TEST_CASE("pipe_size: that many jobs of one user use no more than the user's pages",
          "[unit][agent]") {
  for (std::size_t pipes = 1; pipes <= 128; ++pipes)
    for (const std::size_t jobs : {kJobsWithFiles, kJobsWithConsole})
      CHECK(jobs * pipes * std::max(pipe_bytes(pipes, jobs, 16384, 4096), kPipeBytesMin) / 4096 <=
            std::max<std::size_t>(16384, jobs * pipes * 16));
}

TEST_CASE("pipe_size: half of the user's pages stay with other programs", "[unit][agent]") {
  CHECK(reserve_pieces(16384, 4096, 1024 * kKiB) == 32);
  CHECK(reserve_pieces(4096, 4096, 1024 * kKiB) == 8);
  CHECK(reserve_pieces(4096, 4096, 256 * kKiB) == 32);
  CHECK(reserve_pieces(100, 4096, 1024 * kKiB) == 0);
  CHECK(reserve_pieces(16384, 65536, 1024 * kKiB) == 64);  // Each has two descriptors: not more.
  CHECK(reserve_pieces(16384, 4096, 0) == 64);
}

}  // namespace
}  // namespace muster

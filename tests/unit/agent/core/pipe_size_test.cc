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
  CHECK(pipe_bytes(256, kJobsWithFiles, 16384, 4096) == 64 * kKiB);
  CHECK(pipe_bytes(257, kJobsWithFiles, 16384, 4096) == 32 * kKiB);
  CHECK(pipe_bytes(300, kJobsWithConsole, 16384, 4096) == 32 * kKiB);
  CHECK(pipe_bytes(600, kJobsWithFiles, 16384, 4096) == 16 * kKiB);
  CHECK(pipe_bytes(20000, kJobsWithFiles, 16384, 4096) == 8 * kKiB);
  CHECK(pipe_bytes(4, kJobsWithFiles, 64, 4096) == 16 * kKiB);
  CHECK(pipe_bytes(4, kJobsWithFiles, 3, 4096) == 8 * kKiB);
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
      CHECK(jobs * pipes * pipe_bytes(pipes, jobs, 16384, 4096) / 4096 <=
            std::max<std::size_t>(16384, jobs * pipes * 16));
}

TEST_CASE("pipe_size: a job with up to a thousand workers uses a quarter of the user's pages",
          "[unit][agent]") {
  for (std::size_t pipes = 129; pipes <= 2048; ++pipes)
    CHECK(pipes * pipe_bytes(pipes, kJobsWithFiles, 16384, 4096) / 4096 <= 4096);
}

TEST_CASE("pipe_size: a part of the user's pages stays with other programs", "[unit][agent]") {
  CHECK(reserved_part(1024 * kKiB) == 2);
  CHECK(reserved_part(128 * kKiB) == 2);
  CHECK(reserved_part(64 * kKiB) == 8);
  CHECK(reserved_part(8 * kKiB) == 8);
  CHECK(reserve_pieces(16384, 2, 4096, 1024 * kKiB) == 32);
  CHECK(reserve_pieces(16384, 8, 4096, 1024 * kKiB) == 8);
  CHECK(reserve_pieces(4096, 2, 4096, 1024 * kKiB) == 8);
  CHECK(reserve_pieces(4096, 2, 4096, 256 * kKiB) == 32);
  CHECK(reserve_pieces(100, 2, 4096, 1024 * kKiB) == 0);
  CHECK(reserve_pieces(16384, 2, 65536, 1024 * kKiB) == 64);  // Each has two descriptors: not more.
  CHECK(reserve_pieces(16384, 2, 4096, 0) == 64);
}

}  // namespace
}  // namespace muster

// The seeds that a simulation runs: the environment may name one seed, or another number of seeds.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tests/support/trace.h"

namespace muster::testing {

/// Calls run(seed) for the seeds from 1 to `count`. MUSTER_SEED=<seed> runs only this seed,
/// MUSTER_SEEDS=<n> the seeds from 1 to n, MUSTER_SEEDS=<m>-<n> those from m to n,
/// MUSTER_SEEDS=<n>% the first n percent of them. MUSTER_TRACES=<file> adds a line with the trace
/// of each seed to the file.
template <typename Run>
void run_seeds(std::uint64_t count, const Run& run_one) {
  const auto run = [&run_one](std::uint64_t seed) {
    Trace::now().begin();
    run_one(seed);
    Trace::now().end(seed);
  };
  if (const char* only = std::getenv("MUSTER_SEED")) {
    run(std::strtoull(only, nullptr, 0));
    return;
  }
  std::uint64_t first = 1, last = count;
  if (const char* asked = std::getenv("MUSTER_SEEDS")) {
    char* rest = nullptr;
    last = std::strtoull(asked, &rest, 0);
    if (*rest == '%') last = std::max<std::uint64_t>(1, count * last / 100);
    if (*rest == '-') {
      first = last;
      last = std::strtoull(rest + 1, nullptr, 0);
    }
  }
  for (std::uint64_t seed = first; seed <= last; ++seed)
    run(seed);
}

}  // namespace muster::testing

// Which seeds a simulation runs: the environment may ask for one, or for another number of them.

#pragma once

#include <cstdint>
#include <cstdlib>

namespace muster::testing {

/// Calls run(seed) for the seeds 1 to `count`. MUSTER_SEED=<seed> runs only that one,
/// MUSTER_SEEDS=<n> the seeds 1 to n.
template <typename Run>
void run_seeds(std::uint64_t count, const Run& run) {
  if (const char* only = std::getenv("MUSTER_SEED")) {
    run(std::strtoull(only, nullptr, 0));
    return;
  }
  const char* asked = std::getenv("MUSTER_SEEDS");
  const std::uint64_t last = asked != nullptr ? std::strtoull(asked, nullptr, 0) : count;
  for (std::uint64_t seed = 1; seed <= last; ++seed)
    run(seed);
}

}  // namespace muster::testing

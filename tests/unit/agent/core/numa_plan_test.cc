#include "agent/core/numa_plan.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using Catch::Matchers::Contains;
using Cpus = CpusByLocalRank;

// Two packages with two NUMA nodes each. A node has four cores with two threads (n and n + 16), and
// two caches.
NumaTopology two_sockets() {
  NumaTopology machine;
  for (int cpu = 0; cpu < 32; ++cpu) {
    const int core = cpu % 16;
    machine.nodes[core / 4].insert(cpu);
    machine.packages[core / 8].insert(cpu);
    machine.allowed.insert(cpu);
  }
  for (int core = 0; core < 16; ++core)
    machine.cores.push_back({core, core + 16});
  for (int core = 0; core < 16; core += 2)
    machine.caches.push_back({core, core + 1, core + 16, core + 17});
  return machine;
}

Cpus plan(NumaBinding binding, const NumaTopology& machine, const std::vector<int>& devices,
          int workers) {
  const auto cpus = plan_cpus(binding, machine, devices, workers);
  if (!cpus) FAIL(cpus.error().text);
  return *cpus;
}

std::string error(NumaBinding binding, const NumaTopology& machine, const std::vector<int>& devices,
                  int workers) {
  const auto cpus = plan_cpus(binding, machine, devices, workers);
  REQUIRE_FALSE(cpus.has_value());
  return cpus.error().text;
}

TEST_CASE("numa: node and socket", "[unit][agent]") {
  const NumaTopology machine = two_sockets();
  CHECK(plan(NumaBinding::Node, machine, {3, 0}, 2) ==
        Cpus{{12, 13, 14, 15, 28, 29, 30, 31}, {0, 1, 2, 3, 16, 17, 18, 19}});
  CHECK(cpu_list(plan(NumaBinding::Socket, machine, {3}, 1)[0]) == "8-15,24-31");
  CHECK(plan(NumaBinding::Node, machine, {-1}, 1) == plan(NumaBinding::Node, machine, {0}, 1));
}

TEST_CASE(
    "numa: exclusive gives whole cores to each device, and the first devices get the remainder",
    "[unit][agent]") {
  const NumaTopology machine = two_sockets();
  CHECK(plan(NumaBinding::Exclusive, machine, {1, 0, 1, 1}, 4) ==
        Cpus{{4, 5, 20, 21}, {0, 1, 2, 3, 16, 17, 18, 19}, {6, 22}, {7, 23}});
  // Devices without a worker also get their share.
  CHECK(plan(NumaBinding::Exclusive, machine, {0, 0, 0, 0}, 1) == Cpus{{0, 16}});
  CHECK_THAT(error(NumaBinding::Exclusive, machine, {0, 0, 0, 0, 0}, 5), Contains("4 core(s)"));
}

TEST_CASE("numa: core-complex takes the largest first, and begins again when there are no more",
          "[unit][agent]") {
  NumaTopology machine = two_sockets();
  machine.allowed.erase(0);
  CHECK(plan(NumaBinding::CoreComplex, machine, {0, 0, 0}, 3) ==
        Cpus{{2, 3, 18, 19}, {1, 16, 17}, {2, 3, 18, 19}});
  machine.caches.clear();
  CHECK_THAT(error(NumaBinding::CoreComplex, machine, {0}, 1), Contains("share a cache"));
}

TEST_CASE("numa: only CPUs that this process may use", "[unit][agent]") {
  NumaTopology machine = two_sockets();
  machine.allowed = {1, 17, 9};
  CHECK(plan(NumaBinding::Node, machine, {0}, 1) == Cpus{{1, 17}});
  CHECK(plan(NumaBinding::Exclusive, machine, {0}, 1) == Cpus{{1, 17}});
  CHECK(plan(NumaBinding::Socket, machine, {2}, 1) == Cpus{{9}});
  CHECK_THAT(error(NumaBinding::Node, machine, {1}, 1), Contains("may use 1,9,17"));
}

TEST_CASE("numa: an error names the device, the node or the socket that is missing",
          "[unit][agent]") {
  NumaTopology machine = two_sockets();
  CHECK_THAT(error(NumaBinding::Node, machine, {0}, 2), Contains("1 visible device(s)"));
  CHECK_THAT(error(NumaBinding::Node, machine, {9}, 1), Contains("NUMA node 9"));
  machine.packages.clear();
  machine.cores.clear();
  CHECK_THAT(error(NumaBinding::Socket, machine, {0}, 1), Contains("socket of NUMA node 0"));
  CHECK_THAT(error(NumaBinding::Exclusive, machine, {0}, 1), Contains("cores of NUMA node 0"));
}

TEST_CASE("numa: without devices, workers of neighbouring ranks share a node", "[unit][agent]") {
  NumaTopology machine = two_sockets();
  CHECK(spread_over_nodes(machine, 4) == std::vector<int>{0, 1, 2, 3});
  CHECK(spread_over_nodes(machine, 8) == std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(spread_over_nodes(machine, 2) == std::vector<int>{0, 2});
  machine.nodes[9] = {};  // Memory only.
  machine.allowed = {0, 12};
  CHECK(spread_over_nodes(machine, 3) == std::vector<int>{0, 0, 3});
  CHECK(spread_over_nodes({}, 2) == std::vector<int>{0, 0});
}

TEST_CASE("numa: lists of CPUs", "[unit][agent]") {
  CHECK(cpu_list({}).empty());
  CHECK(cpu_list({5}) == "5");
  CHECK(cpu_list({0, 1, 2, 4, 6, 7}) == "0-2,4,6-7");
}

}  // namespace
}  // namespace muster::testing

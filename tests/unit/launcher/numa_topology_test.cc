#include "launcher/numa_topology.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

/// Sets an environment variable during its own lifetime.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

NumaTopology made(const std::string& description) {
  const Variable synthetic("HWLOC_SYNTHETIC", description);
  const auto machine = read_numa_topology();
  if (!machine) FAIL(machine.error().text);
  return *machine;
}

TEST_CASE("numa topology: sockets, nodes, caches, cores and threads", "[unit][launcher]") {
  const NumaTopology machine = made("pack:2 [numa] l3:2 core:2 pu:2");
  CHECK(machine.packages ==
        std::map<int, CpuSet>{{0, {0, 1, 2, 3, 4, 5, 6, 7}}, {1, {8, 9, 10, 11, 12, 13, 14, 15}}});
  CHECK(machine.nodes == machine.packages);
  CHECK(machine.caches ==
        std::vector<CpuSet>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}});
  REQUIRE(machine.cores.size() == 8);
  CHECK(machine.cores[1] == CpuSet{2, 3});
  CHECK(machine.allowed == allowed_cpus());
}

TEST_CASE("numa topology: several nodes in a socket", "[unit][launcher]") {
  const NumaTopology machine = made("pack:1 numa:4 core:2 pu:1");
  CHECK(machine.packages.size() == 1);
  CHECK(machine.nodes == std::map<int, CpuSet>{{0, {0, 1}}, {1, {2, 3}}, {2, {4, 5}}, {3, {6, 7}}});
  CHECK(machine.caches.empty());  // As on many virtual machines.
}

TEST_CASE("numa topology: the last level of a CPU's caches counts", "[unit][launcher]") {
  const NumaTopology machine = made("pack:1 l3:2 l2:2 l1:2 core:1 pu:1");
  CHECK(machine.caches == std::vector<CpuSet>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(made("pack:1 l2:2 core:2 pu:1").caches == std::vector<CpuSet>{{0, 1}, {2, 3}});
}

TEST_CASE("numa topology: this machine has the CPUs that the process may use", "[unit][launcher]") {
  const auto machine = read_numa_topology();
  REQUIRE(machine.has_value());
  CHECK_FALSE(machine->allowed.empty());
  CpuSet all;
  for (const auto& [number, cpus] : machine->nodes)
    all.insert(cpus.begin(), cpus.end());
  CHECK(std::includes(all.begin(), all.end(), machine->allowed.begin(), machine->allowed.end()));
}

TEST_CASE("numa topology: a description that hwloc cannot read is an error", "[unit][launcher]") {
  const Variable file("HWLOC_XMLFILE", "/nonexistent.xml");
  const auto machine = read_numa_topology();
  // hwloc may read the real machine instead. The result is never a machine without CPUs.
  if (machine) CHECK_FALSE(machine->nodes.empty());
}

TEST_CASE("numa topology: a device's node is read from its folder in sysfs", "[unit][launcher]") {
  const fs::path folder = fs::temp_directory_path() / ("muster_numa_" + std::to_string(::getpid()));
  for (const auto& [address, node] :
       {std::pair{"0000:01:00.0", "-1\n"}, std::pair{"0000:dc:00.0", "3\n"}}) {
    fs::create_directories(folder / address);
    std::ofstream(folder / address / "numa_node") << node;
  }
  const auto nodes = numa_nodes_of({"0000:dc:00.0", "0000:01:00.0"}, folder);
  REQUIRE(nodes.has_value());
  CHECK(*nodes == std::vector<int>{3, -1});
  const auto missing = numa_nodes_of({"0000:02:00.0"}, folder);
  REQUIRE_FALSE(missing.has_value());
  CHECK_THAT(missing.error().text, Catch::Matchers::Contains("0000:02:00.0/numa_node"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace muster::testing

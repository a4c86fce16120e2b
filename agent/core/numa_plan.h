// --numa-binding: plans which CPUs each worker may run on, near its device.
//
// Pure: the machine's topology is an argument, which launcher/numa_topology.h reads. The rules are
// those of torch/numa/binding.py (2.13.0); docs/compatibility.md lists the differences.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <boost/system/result.hpp>

namespace muster {

/// The kernel's numbers of logical CPUs.
using CpuSet = std::set<int>;

/// The machine's topology. A CPU belongs to at most one NUMA node, one package, one core and one
/// cache. CPUs that this process may not use are also listed.
struct NumaTopology {
  std::map<int, CpuSet> nodes;     // NUMA nodes by number. A node with memory only has no CPUs.
  std::map<int, CpuSet> packages;  // Sockets by number.
  std::vector<CpuSet> cores;       // Each core with all of its hardware threads.
  std::vector<CpuSet> caches;      // The highest-level data or unified cache of each CPU.
  CpuSet allowed;                  // The affinity of this process.
};

enum class NumaBinding {
  Node,         // All CPUs of the device's NUMA node.
  Socket,       // All CPUs of every NUMA node in that node's package.
  Exclusive,    // A share of the node's cores that no other device uses.
  CoreComplex,  // The CPUs of one last-level cache on the node.
};

/// Why the requested binding is not possible: a sentence for people.
struct NumaPlanError {
  std::string text;
};
using CpusByLocalRank = std::vector<CpuSet>;

/// Returns the CPUs for each of `workers` workers; worker N belongs to device N. `node_of_device`
/// has the NUMA node of every device that workers see. A negative number means that the machine
/// does not report it: then node 0 is used, as on machines with a single node. No set in the result
/// is empty.
boost::system::result<CpusByLocalRank, NumaPlanError> plan_cpus(
    NumaBinding binding, const NumaTopology& topology, const std::vector<int>& node_of_device,
    int workers);

/// Returns a NUMA node for each worker, as an argument for plan_cpus(), if there are no devices.
/// Neighbouring workers share a node. The numbers of workers of nodes with usable CPUs differ by at
/// most one.
std::vector<int> spread_over_nodes(const NumaTopology& topology, int workers);

/// "0-2,4,6-7"; empty for no CPU.
std::string cpu_list(const CpuSet& cpus);

}  // namespace muster

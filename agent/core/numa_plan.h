// --numa-binding: which CPUs each worker may run on, near its device.
//
// Pure: the machine comes in as a value, which agent/io/numa_topology.h reads. The rules are those
// of torch/numa/binding.py (2.13.0); docs/compatibility.md has the differences.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <boost/system/result.hpp>

namespace muster {

/// Numbers of logical CPUs, as the kernel has them.
using CpuSet = std::set<int>;

/// What the machine is made of. A CPU belongs to one NUMA node, one package, one core and one cache
/// at most; CPUs that this process may not use are listed, too.
struct NumaTopology {
  std::map<int, CpuSet> nodes;     // NUMA nodes by their number; those with memory only have none.
  std::map<int, CpuSet> packages;  // Sockets by their number.
  std::vector<CpuSet> cores;       // Each with all of its hardware threads.
  std::vector<CpuSet> caches;      // Of each CPU the data or unified cache of the highest level.
  CpuSet allowed;                  // The affinity of this process.
};

enum class NumaBinding {
  Node,         // All CPUs of the device's NUMA node.
  Socket,       // Those of every NUMA node in that node's package.
  Exclusive,    // A share of the node's cores that no other device has.
  CoreComplex,  // The CPUs of one last-level cache on the node.
};

/// Why workers cannot be bound as asked: a sentence for people.
struct NumaPlanError {
  std::string text;
};
using CpusByLocalRank = std::vector<CpuSet>;

/// The CPUs of each of `workers` workers; worker N belongs to device N. `node_of_device` has the
/// NUMA node of every device that workers see, negative where the machine does not say: then it is
/// node 0, as on machines that have only that. No set in the result is empty.
boost::system::result<CpusByLocalRank, NumaPlanError> plan_cpus(
    NumaBinding binding, const NumaTopology& topology, const std::vector<int>& node_of_device,
    int workers);

/// Where there are no devices: neighbouring workers share a NUMA node, and nodes with CPUs that may
/// be used get the same number of workers, but for one. A node for each worker, for plan_cpus().
std::vector<int> spread_over_nodes(const NumaTopology& topology, int workers);

/// "0-2,4,6-7"; empty for no CPU.
std::string cpu_list(const CpuSet& cpus);

}  // namespace muster

// Reads this machine for agent/core/numa_plan.h: its topology from hwloc, and the NUMA nodes of
// devices from /sys.
#pragma once

#include <string>
#include <vector>

#include "agent/core/numa_plan.h"

namespace muster {

/// Why the machine cannot be read: a sentence for people.
struct NumaReadError {
  std::string text;
};

/// Loads hwloc's library, which takes milliseconds: call it only for --numa-binding. HWLOC_XMLFILE
/// and HWLOC_SYNTHETIC replace the machine, as in every program that uses hwloc. The allowed CPUs
/// are still those of this process.
boost::system::result<NumaTopology, NumaReadError> read_numa_topology();

/// The CPUs in this process's affinity mask.
CpuSet allowed_cpus();

/// The NUMA node of the device at each PCI address ("0000:dc:00.0"), as `devices_folder` has it: -1
/// if the machine has only one node. An error names the file.
boost::system::result<std::vector<int>, NumaReadError> numa_nodes_of(
    const std::vector<std::string>& pci_addresses,
    const std::string& devices_folder = "/sys/bus/pci/devices");

}  // namespace muster

// This machine for agent/core/numa_plan.h: read by hwloc, and the devices' places by /sys.
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
/// and HWLOC_SYNTHETIC replace the machine, as in every program that uses hwloc; the allowed CPUs
/// are this process's all the same.
boost::system::result<NumaTopology, NumaReadError> read_numa_topology();

/// The CPUs in this process's affinity mask.
CpuSet allowed_cpus();

/// For each PCI address ("0000:dc:00.0") the NUMA node that `devices_folder`, by default
/// /sys/bus/pci/devices, gives it: -1 where the machine has but one. An error names the file.
boost::system::result<std::vector<int>, NumaReadError> numa_nodes_of(
    const std::vector<std::string>& pci_addresses,
    const std::string& devices_folder = "/sys/bus/pci/devices");

}  // namespace muster

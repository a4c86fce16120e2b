// Counts the GPUs, XPUs and CPUs that the workers may use, without importing torch.
//
// The visible_... functions are pure: they select from an inventory as CUDA and Level Zero do. The
// other functions query the machine. NVML takes some milliseconds: call them only when needed.
#pragma once

#include <string>
#include <vector>

#include "launcher/argparse.h"

namespace muster {

/// GPUs in NVML's order. The numbers in CUDA_VISIBLE_DEVICES follow the same order.
struct GpuInventory {
  int count = 0;
  std::vector<std::string> uuids;          // "GPU-...": one per GPU, or none if not available.
  std::vector<std::string> mig_uuids;      // "MIG-...": the MIG devices of all GPUs.
  std::vector<int> mig_gpus;               // For each MIG device, the number of its GPU.
  std::vector<std::string> pci_addresses;  // "0000:dc:00.0": one per GPU, or none.
};

/// The numbers of the GPUs that CUDA shows if CUDA_VISIBLE_DEVICES is `*devices`, in CUDA's order.
/// Null: the variable is not set.
std::vector<int> visible_gpu_numbers(const GpuInventory& inventory, const std::string* devices);
/// The number of these GPUs, which is torch.cuda.device_count().
int visible_gpus(const GpuInventory& inventory, const std::string* devices);

struct XpuInventory {
  int discrete = 0;
  int integrated = 0;
};
/// The number of discrete XPUs, or of integrated ones if there is no discrete one, without those
/// that `*mask`, the value of ZE_AFFINITY_MASK, leaves out. Null: the variable is not set.
int visible_xpus(const XpuInventory& inventory, const std::string* mask);

/// Queries NVML. If NVML does not load, reads what the driver shows in /proc and /dev.
GpuInventory find_gpus();
/// Counts Intel's cards in /sys/class/drm. Finds none if the Level Zero loader, which torch needs,
/// is not installed.
XpuInventory find_xpus();

int count_gpus(const Environment& environment);
int count_xpus(const Environment& environment);
/// The number of CPUs in this process's affinity mask.
int count_cpus();

}  // namespace muster

// How many GPUs, XPUs and CPUs the workers may use, without importing torch.
//
// visible_gpus and visible_xpus are pure: they pick from an inventory as CUDA and Level Zero would.
// The others ask the machine, which takes NVML some milliseconds: call them only when needed.
#pragma once

#include <string>
#include <vector>

#include "launcher/argparse.h"

namespace muster {

struct GpuInventory {
  int count = 0;                   // In NVML's order, which CUDA_VISIBLE_DEVICES' numbers follow.
  std::vector<std::string> uuids;  // "GPU-...", as many, or none if they could not be asked.
  std::vector<std::string> mig_uuids;      // "MIG-...", of all of them.
  std::vector<int> mig_gpus;               // For each of these the GPU that it is a part of.
  std::vector<std::string> pci_addresses;  // "0000:dc:00.0", as many as GPUs, or none.
};

/// The GPUs that CUDA shows where CUDA_VISIBLE_DEVICES is `*devices`, in its order; null: not set.
std::vector<int> visible_gpu_numbers(const GpuInventory& inventory, const std::string* devices);
/// How many: what torch.cuda.device_count() says.
int visible_gpus(const GpuInventory& inventory, const std::string* devices);

struct XpuInventory {
  int discrete = 0;
  int integrated = 0;
};
/// The discrete ones if there are any, without those that ZE_AFFINITY_MASK leaves out.
int visible_xpus(const XpuInventory& inventory, const std::string* mask);

/// By NVML; where that does not load, by what the driver shows in /proc and /dev.
GpuInventory find_gpus();
/// Intel's cards in /sys/class/drm, if the Level Zero loader that torch needs is installed.
XpuInventory find_xpus();

int count_gpus(const Environment& environment);
int count_xpus(const Environment& environment);
/// The size of this process's affinity mask.
int count_cpus();

}  // namespace muster

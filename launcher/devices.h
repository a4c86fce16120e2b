// Finds and counts the GPUs, XPUs and CPUs that the workers may use, without importing torch.
//
// The visible_... functions are pure: they select from an inventory as CUDA and Level Zero do. The
// other functions query the machine. NVML takes some milliseconds: call them only when needed.
#pragma once

#include <string>
#include <vector>

#include "launcher/argparse.h"

namespace muster {

/// NVIDIA's GPUs in NVML's order, or AMD's in that of the kernel's driver. The numbers in
/// CUDA_VISIBLE_DEVICES follow the same order.
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

/// AMD's GPUs that HIP shows with these variables, as an inventory in HIP's order. `inventory` is
/// in the order of the kernel's driver. ROCR_VISIBLE_DEVICES selects first. From its result
/// HIP_VISIBLE_DEVICES selects, or CUDA_VISIBLE_DEVICES where that is not set.
GpuInventory visible_amd_gpus(const GpuInventory& inventory, const Environment& variables);

struct XpuInventory {
  int discrete = 0;
  int integrated = 0;
  std::vector<std::string> discrete_addresses = {};  // "0000:9a:00.0", in their order.
  std::vector<std::string> integrated_addresses = {};
};
/// The numbers of the XPUs that Level Zero shows: discrete ones, or integrated ones if there is no
/// discrete one, without those that `*mask`, the value of ZE_AFFINITY_MASK, leaves out. Null: the
/// variable is not set.
std::vector<int> visible_xpu_numbers(const XpuInventory& inventory, const std::string* mask);
int visible_xpus(const XpuInventory& inventory, const std::string* mask);

/// Queries NVML. If NVML does not load, reads what the driver shows in /proc and /dev.
GpuInventory find_gpus();
/// AMD's GPUs that the kernel's driver (KFD) shows below `sys`, without those whose device file
/// this process may not have.
GpuInventory find_amd_gpus(const std::string& sys = "/sys", const std::string& dev = "/dev");
/// Intel's cards below `sys`.
XpuInventory find_intel_cards(const std::string& sys = "/sys");
/// The same. Finds none if the Level Zero loader, which torch needs,
/// is not installed.
XpuInventory find_xpus();

int count_gpus(const Environment& environment);
int count_xpus(const Environment& environment);
/// Where the accelerators are that workers with these variables see, in the order of their numbers.
struct DevicePlaces {
  std::vector<std::string> pci_addresses;
  bool are_unknown = false;     // There are devices, but the driver does not say where.
  bool may_have_parts = false;  // A worker may get a part of a device: a tile of an XPU.
};
/// NVIDIA's GPUs, or AMD's where there are none, or Intel's.
DevicePlaces find_device_places(const Environment& variables);
/// The number of CPUs in this process's affinity mask.
int count_cpus();

}  // namespace muster

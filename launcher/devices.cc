#include "launcher/devices.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "rendezvous/net/library_function.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<fs::path> entries_of(const char* folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_name_and_number(const std::string& text, std::string_view name) {
  return text.size() > name.size() && text.starts_with(name) &&
         text.find_first_not_of("0123456789", name.size()) == std::string::npos;
}

/// The few entry points of NVML that are needed, loaded at run time: nodes without a driver lack
/// it.
class Nvml {
 public:
  using Device = void*;

  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    find_function(library_, "nvmlInit_v2", init_);
    find_function(library_, "nvmlShutdown", shutdown_);
    find_function(library_, "nvmlDeviceGetCount_v2", get_count_);
    find_function(library_, "nvmlDeviceGetHandleByIndex_v2", get_handle_);
    find_function(library_, "nvmlDeviceGetUUID", get_uuid_);
    find_function(library_, "nvmlDeviceGetPciInfo_v3", get_pci_);
    find_function(library_, "nvmlDeviceGetMaxMigDeviceCount", get_mig_count_);
    find_function(library_, "nvmlDeviceGetMigDeviceHandleByIndex", get_mig_handle_);
    is_ready_ = init_ != nullptr && get_count_ != nullptr && init_() == 0;
  }
  ~Nvml() {
    if (is_ready_ && shutdown_ != nullptr) shutdown_();
    // Not closed: drivers are known to leave threads and handlers behind that run its code.
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_ready() const { return is_ready_; }

  bool count(unsigned int& devices) const { return get_count_(&devices) == 0; }
  std::string uuid(Device device) const {
    std::array<char, 96> text{};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE.
    if (get_uuid_ == nullptr || get_uuid_(device, text.data(), text.size()) != 0) return {};
    return text.data();
  }
  /// As /sys/bus/pci/devices names it; empty if it cannot be asked.
  std::string pci_address(Device device) const {
    PciInfo info{};
    if (get_pci_ == nullptr || get_pci_(device, &info) != 0) return {};
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
    return text.data();
  }
  Device device(unsigned int index) const {
    Device device = nullptr;
    if (get_handle_ == nullptr || get_handle_(index, &device) != 0) return nullptr;
    return device;
  }
  std::vector<std::string> mig_uuids(Device device) const {
    std::vector<std::string> uuids;
    unsigned int most = 0;
    if (get_mig_count_ == nullptr || get_mig_handle_ == nullptr ||
        get_mig_count_(device, &most) != 0)
      return uuids;
    for (unsigned int i = 0; i < most; ++i) {
      Device part = nullptr;
      if (get_mig_handle_(device, i, &part) == 0) uuids.push_back(uuid(part));
    }
    return uuids;
  }

 private:
  struct PciInfo {  // nvmlPciInfo_t of nvml.h, CUDA 12.
    std::array<char, 16> legacy_bus_id;
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pci_device_id;
    unsigned int pci_subsystem_id;
    std::array<char, 32> bus_id;
  };

  void* library_ = nullptr;
  bool is_ready_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*get_count_)(unsigned int*) = nullptr;
  int (*get_handle_)(unsigned int, Device*) = nullptr;
  int (*get_uuid_)(Device, char*, unsigned int) = nullptr;
  int (*get_pci_)(Device, PciInfo*) = nullptr;
  int (*get_mig_count_)(Device, unsigned int*) = nullptr;
  int (*get_mig_handle_)(Device, unsigned int, Device*) = nullptr;
};

/// "GPU UUID: 	 GPU-..." in /proc/driver/nvidia/gpus/<bus>/information.
std::string uuid_in_information(const fs::path& folder) {
  std::ifstream in(folder / "information");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("GPU UUID:"))
      if (const auto at = line.find("GPU-"); at != std::string::npos) return line.substr(at);
  return {};
}

GpuInventory gpus_from_files() {
  GpuInventory gpus;
  for (const fs::path& folder : entries_of("/proc/driver/nvidia/gpus"))
    if (std::string uuid = uuid_in_information(folder); !uuid.empty()) {
      gpus.uuids.push_back(std::move(uuid));
      gpus.pci_addresses.push_back(folder.filename().string());
    }
  for (const fs::path& node : entries_of("/dev"))
    if (is_name_and_number(node.filename().string(), "nvidia")) ++gpus.count;
  // A container may be given fewer nodes in /dev than the driver lists.
  if (gpus.count == 0) gpus.count = static_cast<int>(gpus.uuids.size());
  if (gpus.count != static_cast<int>(gpus.uuids.size())) {
    gpus.uuids.clear();
    gpus.pci_addresses.clear();
  }
  return gpus;
}

}  // namespace

GpuInventory find_gpus() {
  const Nvml nvml;
  unsigned int count = 0;
  if (!nvml.is_ready() || !nvml.count(count)) return gpus_from_files();
  GpuInventory gpus{.count = static_cast<int>(count)};
  for (unsigned int i = 0; i < count; ++i) {
    const Nvml::Device device = nvml.device(i);
    if (device == nullptr) continue;
    gpus.uuids.push_back(nvml.uuid(device));
    if (std::string address = nvml.pci_address(device); !address.empty())
      gpus.pci_addresses.push_back(std::move(address));
    for (std::string& uuid : nvml.mig_uuids(device)) {
      gpus.mig_uuids.push_back(std::move(uuid));
      gpus.mig_gpus.push_back(static_cast<int>(i));
    }
  }
  if (gpus.pci_addresses.size() != count) gpus.pci_addresses.clear();
  if (gpus.uuids.size() != count) gpus.uuids.clear();
  return gpus;
}

XpuInventory find_xpus() {
  XpuInventory xpus;
  // Without the loader no torch can use them, and an office machine's graphics are no accelerator.
  if (dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return xpus;
  for (const fs::path& card : entries_of("/sys/class/drm")) {
    if (!is_name_and_number(card.filename().string(), "card")) continue;
    if (first_line(card / "device/vendor") != "0x8086") continue;
    std::error_code error;
    const std::string bus = fs::canonical(card / "device", error).filename().string();
    // Intel's integrated graphics is always this function of the root bus.
    ++(bus == "0000:00:02.0" ? xpus.integrated : xpus.discrete);
  }
  return xpus;
}

int count_gpus(const Environment& environment) {
  const auto devices = environment.find("CUDA_VISIBLE_DEVICES");
  const std::string* text = devices == environment.end() ? nullptr : &devices->second;
  // Nothing visible: no need to wake the driver.
  if (text != nullptr && visible_gpus({.count = 1 << 20}, text) == 0 &&
      !text->starts_with("GPU-") && !text->starts_with("MIG-"))
    return 0;
  return visible_gpus(find_gpus(), text);
}

int count_xpus(const Environment& environment) {
  const auto mask = environment.find("ZE_AFFINITY_MASK");
  return visible_xpus(find_xpus(), mask == environment.end() ? nullptr : &mask->second);
}

int count_cpus() {
  // The kernel refuses a mask shorter than its own.
  constexpr std::size_t kMostCpus = 1 << 20;
  for (std::size_t cpus = 1024; cpus <= kMostCpus; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(cpus), [](cpu_set_t* set) { CPU_FREE(set); });
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (mask != nullptr && sched_getaffinity(0, bytes, mask.get()) == 0)
      return std::max(1, CPU_COUNT_S(bytes, mask.get()));
  }
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace muster

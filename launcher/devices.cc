#include "launcher/devices.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "launcher/numa_topology.h"
#include "rendezvous/net/nvml.h"

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

/// Reads the line "GPU UUID: 	 GPU-..." in /proc/driver/nvidia/gpus/<bus>/information.
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
  // A container may have fewer device files in /dev than the driver lists GPUs.
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
  if (nvml.start_error() != 0 || nvml.count(count) != 0) return gpus_from_files();
  GpuInventory gpus{.count = static_cast<int>(count)};
  for (unsigned int i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    if (nvml.device(i, device) != 0) continue;
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
  // Without the loader, torch cannot use the cards. The graphics of an office machine are not an
  // accelerator.
  if (dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return xpus;
  for (const fs::path& card : entries_of("/sys/class/drm")) {
    if (!is_name_and_number(card.filename().string(), "card")) continue;
    if (first_line(card / "device/vendor") != "0x8086") continue;
    std::error_code error;
    const std::string bus = fs::canonical(card / "device", error).filename().string();
    // Intel's integrated graphics always has this address on the root bus.
    ++(bus == "0000:00:02.0" ? xpus.integrated : xpus.discrete);
  }
  return xpus;
}

int count_gpus(const Environment& environment) {
  const auto devices = environment.find("CUDA_VISIBLE_DEVICES");
  const std::string* text = devices == environment.end() ? nullptr : &devices->second;
  // The driver is not queried if no GPU can be visible.
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
  if (const CpuSet cpus = allowed_cpus(); !cpus.empty()) return static_cast<int>(cpus.size());
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace muster

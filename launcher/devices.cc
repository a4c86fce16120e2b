#include "launcher/devices.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>

#include <spdlog/fmt/fmt.h>

#include "base/python_text.h"
#include "base/system/first_line.h"
#include "base/system/nvml.h"
#include "launcher/numa_topology.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries_of(const std::string& folder) {
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

/// Reads lines of a name and a number.
std::map<std::string, std::uint64_t> numbers_in(const fs::path& file) {
  std::ifstream in(file);
  std::map<std::string, std::uint64_t> numbers;
  std::string name;
  for (std::uint64_t number = 0; in >> name >> number;)
    numbers[name] = number;
  return numbers;
}

/// The variable's value; null: it is not set.
const std::string* value_of(const Environment& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : &found->second;
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

XpuInventory find_intel_cards(const std::string& sys) {
  XpuInventory xpus;
  for (const fs::path& card : entries_of(sys + "/class/drm")) {
    if (!is_name_and_number(card.filename().string(), "card")) continue;
    if (first_line(card / "device/vendor") != "0x8086") continue;
    std::error_code error;
    const std::string bus = fs::canonical(card / "device", error).filename().string();
    // Intel's integrated graphics always has this address on the root bus.
    const bool is_integrated = bus == "0000:00:02.0";
    ++(is_integrated ? xpus.integrated : xpus.discrete);
    (is_integrated ? xpus.integrated_addresses : xpus.discrete_addresses).push_back(bus);
  }
  std::sort(xpus.discrete_addresses.begin(), xpus.discrete_addresses.end());
  return xpus;
}

XpuInventory find_xpus() {
  // Without the loader, torch cannot use the cards. The graphics of an office machine are not an
  // accelerator.
  if (dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return {};
  return find_intel_cards();
}

GpuInventory find_amd_gpus(const std::string& sys, const std::string& dev) {
  // A node of the KFD is a GPU or the machine's CPUs. The number of a node is its folder's name.
  std::map<std::int64_t, fs::path> nodes;
  for (const fs::path& node : entries_of(sys + "/class/kfd/kfd/topology/nodes"))
    if (const auto number = parse_python_int(node.filename().string())) nodes[*number] = node;
  GpuInventory gpus;
  for (const auto& [number, node] : nodes) {
    // A container may not read the properties of GPUs that it was not given.
    std::map<std::string, std::uint64_t> properties = numbers_in(node / "properties");
    std::error_code error;
    const std::string file = "/dri/renderD" + std::to_string(properties["drm_render_minor"]);
    if (properties["simd_count"] == 0 || !fs::exists(dev + file, error)) continue;
    const std::uint64_t location = properties["location_id"];
    gpus.pci_addresses.push_back(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", properties["domain"],
                                             location >> 8 & 0xff, location >> 3 & 0x1f,
                                             location & 7));
    gpus.uuids.push_back(fmt::format("GPU-{:016x}", properties["unique_id"]));
    ++gpus.count;
  }
  return gpus;
}

DevicePlaces find_device_places(const Environment& variables) {
  DevicePlaces places;
  const GpuInventory gpus = find_gpus();
  for (const int number : visible_gpu_numbers(gpus, value_of(variables, "CUDA_VISIBLE_DEVICES"))) {
    places.are_unknown = gpus.pci_addresses.empty();
    if (places.are_unknown) return places;
    places.pci_addresses.push_back(gpus.pci_addresses.at(static_cast<std::size_t>(number)));
  }
  if (gpus.count > 0) return places;
  places.pci_addresses = visible_amd_gpus(find_amd_gpus(), variables).pci_addresses;
  if (!places.pci_addresses.empty()) return places;
  const XpuInventory xpus = find_xpus();
  const auto& addresses = xpus.discrete > 0 ? xpus.discrete_addresses : xpus.integrated_addresses;
  for (const int number : visible_xpu_numbers(xpus, value_of(variables, "ZE_AFFINITY_MASK")))
    places.pci_addresses.push_back(addresses.at(static_cast<std::size_t>(number)));
  places.may_have_parts = true;
  return places;
}

int count_gpus(const Environment& environment) {
  const std::string* text = value_of(environment, "CUDA_VISIBLE_DEVICES");
  // The driver is not queried if no GPU can be visible.
  if (text != nullptr && visible_gpus({.count = 1 << 20}, text) == 0 &&
      !text->starts_with("GPU-") && !text->starts_with("MIG-"))
    return 0;
  return visible_gpus(find_gpus(), text);
}

int count_xpus(const Environment& environment) {
  return visible_xpus(find_xpus(), value_of(environment, "ZE_AFFINITY_MASK"));
}

int count_cpus() {
  if (const CpuSet cpus = allowed_cpus(); !cpus.empty()) return static_cast<int>(cpus.size());
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace muster

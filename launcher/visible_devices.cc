// Applies CUDA_VISIBLE_DEVICES and ZE_AFFINITY_MASK to an inventory; declared in devices.h.
//
// Source of the rules for CUDA: torch/cuda/__init__.py of 2.13.0, which repeats the driver's rules.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/python_text.h"
#include "launcher/devices.h"

namespace muster {
namespace {

/// Reads leading digits as strtoul does and ignores the text after them. Nothing for a negative
/// number or for no number: both end the list.
std::optional<int> leading_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  constexpr int kLimit = 100'000'000;
  std::optional<int> number;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    number = std::min(number.value_or(0) * 10 + (c - '0'), kLimit);
  }
  return number;
}

/// For a list of numbers: the devices before the first number without a device. A repeated number
/// makes all devices invisible.
std::vector<int> visible_by_number(int count, std::string_view list) {
  std::vector<int> numbers;
  for (const std::string_view entry : split(list, ',')) {
    const auto number = leading_number(strip(entry));
    if (!number) break;
    if (std::find(numbers.begin(), numbers.end(), *number) != numbers.end()) return {};
    numbers.push_back(*number);
  }
  const auto missing =
      std::find_if(numbers.begin(), numbers.end(), [count](int number) { return number >= count; });
  numbers.erase(missing, numbers.end());
  return numbers;
}

/// For a list of prefixes of UUIDs: the devices before the first prefix that fits no device or
/// several. A repeated prefix or device makes all devices invisible.
std::vector<int> visible_by_uuid(const std::vector<std::string>& uuids, std::string_view list,
                                 std::string_view prefix) {
  std::set<std::string_view> entries;
  std::vector<std::string_view> in_order;
  for (const std::string_view entry : split(list, ',')) {
    if (entries.contains(entry)) return {};
    if (!entry.starts_with(prefix)) break;
    entries.insert(entry);
    in_order.push_back(entry);
  }
  std::vector<int> chosen;
  for (const std::string_view entry : in_order) {
    std::optional<std::size_t> fit;
    bool is_ambiguous = false;
    for (std::size_t i = 0; i < uuids.size(); ++i) {
      if (!uuids[i].starts_with(entry)) continue;
      is_ambiguous = fit.has_value();
      if (is_ambiguous) break;
      fit = i;
    }
    if (!fit || is_ambiguous) break;
    const int number = static_cast<int>(*fit);
    if (std::find(chosen.begin(), chosen.end(), number) != chosen.end()) return {};
    chosen.push_back(number);
  }
  return chosen;
}

}  // namespace

std::vector<int> visible_gpu_numbers(const GpuInventory& inventory, const std::string* devices) {
  std::vector<int> numbers;
  if (devices == nullptr) {
    for (int number = 0; number < inventory.count; ++number)
      numbers.push_back(number);
    return numbers;
  }
  if (devices->starts_with("GPU-")) return visible_by_uuid(inventory.uuids, *devices, "GPU-");
  if (!devices->starts_with("MIG-")) return visible_by_number(inventory.count, *devices);
  // A process sees at most one MIG device through CUDA, even if several are listed.
  const std::vector<int> parts = visible_by_uuid(inventory.mig_uuids, *devices, "MIG-");
  if (parts.empty()) return numbers;
  const auto part = static_cast<std::size_t>(parts.front());
  numbers.push_back(part < inventory.mig_gpus.size() ? inventory.mig_gpus[part] : 0);
  return numbers;
}

int visible_gpus(const GpuInventory& inventory, const std::string* devices) {
  if (devices == nullptr) return inventory.count;
  return static_cast<int>(visible_gpu_numbers(inventory, devices).size());
}

GpuInventory visible_amd_gpus(const GpuInventory& inventory, const Environment& variables) {
  const auto select = [&](const GpuInventory& from, const char* name) {
    const auto list = variables.find(std::string_view(name));
    if (list == variables.end()) return from;
    GpuInventory selected;
    for (const int number : visible_gpu_numbers(from, &list->second)) {
      const auto at = static_cast<std::size_t>(number);
      selected.uuids.push_back(from.uuids.at(at));
      selected.pci_addresses.push_back(from.pci_addresses.at(at));
      ++selected.count;
    }
    return selected;
  };
  const bool by_hip = variables.contains(std::string_view("HIP_VISIBLE_DEVICES"));
  return select(select(inventory, "ROCR_VISIBLE_DEVICES"),
                by_hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES");
}

std::vector<int> visible_xpu_numbers(const XpuInventory& inventory, const std::string* mask) {
  const int count = inventory.discrete > 0 ? inventory.discrete : inventory.integrated;
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (mask == nullptr || mask->empty()) return numbers;
  // The mask is "0,1", or "0.0,0.1,1" with parts of devices. Each different device counts once.
  std::set<int> chosen;
  for (const std::string_view entry : split(*mask, ','))
    if (const auto number = leading_number(strip(entry)); number && *number < count)
      chosen.insert(*number);
  return {chosen.begin(), chosen.end()};
}

int visible_xpus(const XpuInventory& inventory, const std::string* mask) {
  return static_cast<int>(visible_xpu_numbers(inventory, mask).size());
}

}  // namespace muster

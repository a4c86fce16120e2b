#include "base/system/nvml.h"

#include <array>
#include <cstdio>

#include "base/system/library_function.h"

namespace muster {

struct Nvml::PciInfo {  // nvmlPciInfo_t of nvml.h, CUDA 12.
  std::array<char, 16> legacy_bus_id;
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  std::array<char, 32> bus_id;
};

Nvml::Nvml() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  int (*init)() = nullptr;
  is_installed_ = find_function(library, "nvmlInit_v2", init) &&
                  find_function(library, "nvmlDeviceGetCount_v2", get_count_) &&
                  find_function(library, "nvmlDeviceGetHandleByIndex_v2", get_handle_);
  if (!is_installed_) return;
  find_function(library, "nvmlShutdown", shutdown_);
  find_function(library, "nvmlDeviceGetName", get_name_);
  find_function(library, "nvmlDeviceGetUUID", get_uuid_);
  find_function(library, "nvmlDeviceGetPciInfo_v3", get_pci_);
  find_function(library, "nvmlDeviceGetMaxMigDeviceCount", get_mig_count_);
  find_function(library, "nvmlDeviceGetMigDeviceHandleByIndex", get_mig_handle_);
  find_function(library, "nvmlDeviceGetTotalEccErrors", get_errors_);
  find_function(library, "nvmlDeviceGetCurrentClocksThrottleReasons", get_reasons_);
  find_function(library, "nvmlDeviceGetRemappedRows", get_rows_);
  start_error_ = init();
}

Nvml::~Nvml() {
  if (start_error_ == 0 && shutdown_ != nullptr) shutdown_();
}

std::string Nvml::name(Device device) const {
  std::array<char, 96> text{};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE.
  if (get_name_ == nullptr || get_name_(device, text.data(), text.size() - 1) != 0) return {};
  return text.data();
}

std::string Nvml::uuid(Device device) const {
  std::array<char, 96> text{};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE.
  if (get_uuid_ == nullptr || get_uuid_(device, text.data(), text.size()) != 0) return {};
  return text.data();
}

std::string Nvml::pci_address(Device device) const {
  PciInfo info{};
  if (get_pci_ == nullptr || get_pci_(device, &info) != 0) return {};
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
  return text.data();
}

std::vector<std::string> Nvml::mig_uuids(Device device) const {
  std::vector<std::string> uuids;
  unsigned int most = 0;
  if (get_mig_count_ == nullptr || get_mig_handle_ == nullptr || get_mig_count_(device, &most) != 0)
    return uuids;
  for (unsigned int i = 0; i < most; ++i) {
    Device part = nullptr;
    if (get_mig_handle_(device, i, &part) == 0) uuids.push_back(uuid(part));
  }
  return uuids;
}

std::optional<unsigned long long> Nvml::uncorrected_errors(Device device) const {
  constexpr int kUncorrected = 1;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
  constexpr int kSinceLoaded = 0;  // NVML_VOLATILE_ECC
  unsigned long long errors = 0;
  if (get_errors_ == nullptr || get_errors_(device, kUncorrected, kSinceLoaded, &errors) != 0)
    return std::nullopt;
  return errors;
}

std::optional<unsigned long long> Nvml::slowdown_reasons(Device device) const {
  unsigned long long reasons = 0;
  if (get_reasons_ == nullptr || get_reasons_(device, &reasons) != 0) return std::nullopt;
  return reasons;
}

std::optional<Nvml::RemappedRows> Nvml::remapped_rows(Device device) const {
  unsigned int corrected = 0;
  unsigned int uncorrected = 0;
  unsigned int pending = 0;
  unsigned int failed = 0;
  if (get_rows_ == nullptr || get_rows_(device, &corrected, &uncorrected, &pending, &failed) != 0)
    return std::nullopt;
  return RemappedRows{.pending = pending != 0, .failed = failed != 0};
}

}  // namespace muster

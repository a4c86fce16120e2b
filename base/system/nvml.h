// NVML, the management library of NVIDIA's driver, for muster and musterctl. It is loaded at run
// time: a machine without the driver does not have it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace muster {

/// Starts NVML, and shuts it down in the destructor. A function that returns an int returns NVML's
/// error code, 0 for success. The other functions return an empty value if the driver or the GPU
/// does not support them.
class Nvml {
 public:
  using Device = void*;
  static constexpr int kDriverNotLoaded = 9;  // NVML_ERROR_DRIVER_NOT_LOADED of nvml.h, CUDA 12.

  /// May wait for the driver. The library stays loaded for the life of the process: some drivers
  /// leave threads and handlers behind that run its code.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Whether the library is there, with the functions that every driver has.
  bool is_installed() const { return is_installed_; }
  /// Why NVML did not start. 0: it did; call the functions below only then.
  int start_error() const { return start_error_; }

  int count(unsigned int& devices) const { return get_count_(&devices); }
  int device(unsigned int index, Device& device) const { return get_handle_(index, &device); }

  std::string name(Device device) const;
  std::string uuid(Device device) const;
  /// "0000:dc:00.0", as /sys/bus/pci/devices names the device.
  std::string pci_address(Device device) const;
  std::vector<std::string> mig_uuids(Device device) const;
  /// Uncorrected memory errors (ECC) since the driver was loaded.
  std::optional<unsigned long long> uncorrected_errors(Device device) const;
  /// Bits: nvmlClocksThrottleReasons... of nvml.h.
  std::optional<unsigned long long> slowdown_reasons(Device device) const;
  struct RemappedRows {
    bool pending;  // The next reset will replace bad rows of memory.
    bool failed;   // No spare rows were left to replace bad ones.
  };
  std::optional<RemappedRows> remapped_rows(Device device) const;

 private:
  struct PciInfo;

  bool is_installed_ = false;
  int start_error_ = -1;
  int (*shutdown_)() = nullptr;
  int (*get_count_)(unsigned int*) = nullptr;
  int (*get_handle_)(unsigned int, Device*) = nullptr;
  // An older driver may lack some of the following functions.
  int (*get_name_)(Device, char*, unsigned int) = nullptr;
  int (*get_uuid_)(Device, char*, unsigned int) = nullptr;
  int (*get_pci_)(Device, PciInfo*) = nullptr;
  int (*get_mig_count_)(Device, unsigned int*) = nullptr;
  int (*get_mig_handle_)(Device, unsigned int, Device*) = nullptr;
  int (*get_errors_)(Device, int, int, unsigned long long*) = nullptr;
  int (*get_reasons_)(Device, unsigned long long*) = nullptr;
  int (*get_rows_)(Device, unsigned int*, unsigned int*, unsigned int*, unsigned int*) = nullptr;
};

}  // namespace muster

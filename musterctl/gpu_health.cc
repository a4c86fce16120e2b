#include "musterctl/gpu_health.h"

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "rendezvous/net/library_function.h"

namespace muster::ctl {
namespace {

// Of nvml.h, CUDA 12.
using NvmlDevice = void*;
constexpr int kNvmlNoDriver = 9;
constexpr int kUncorrected = 1;
constexpr int kSinceLoaded = 0;
constexpr unsigned long long kHardwareSlowdown = 0x08;
constexpr unsigned long long kSoftwareThermal = 0x20;
constexpr unsigned long long kHardwareThermal = 0x40;
constexpr unsigned long long kPowerBrake = 0x80;

struct NvmlFunctions {
  int (*init)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*handle)(unsigned int, NvmlDevice*) = nullptr;
  // From here on an older driver may lack one.
  int (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*errors)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*slowed)(NvmlDevice, unsigned long long*) = nullptr;
  int (*rows)(NvmlDevice, unsigned int*, unsigned int*, unsigned int*, unsigned int*) = nullptr;
};

bool load(NvmlFunctions& nvml) {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  find_function(library, "nvmlDeviceGetName", nvml.name);
  find_function(library, "nvmlDeviceGetTotalEccErrors", nvml.errors);
  find_function(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.slowed);
  find_function(library, "nvmlDeviceGetRemappedRows", nvml.rows);
  return find_function(library, "nvmlInit_v2", nvml.init) &&
         find_function(library, "nvmlDeviceGetCount_v2", nvml.count) &&
         find_function(library, "nvmlDeviceGetHandleByIndex_v2", nvml.handle);
}

// What a GPU does not support stays as for one that is well.
GpuFacts facts_of(const NvmlFunctions& nvml, NvmlDevice device) {
  GpuFacts gpu;
  std::array<char, 96> name{};
  if (nvml.name != nullptr && nvml.name(device, name.data(), name.size() - 1) == 0)
    gpu.name = name.data();
  unsigned long long errors = 0;
  if (nvml.errors != nullptr && nvml.errors(device, kUncorrected, kSinceLoaded, &errors) == 0)
    gpu.uncorrected_errors = errors;
  unsigned long long reasons = 0;
  if (nvml.slowed != nullptr && nvml.slowed(device, &reasons) == 0) {
    gpu.slowed_by_power = (reasons & kPowerBrake) != 0;
    gpu.slowed_by_heat = (reasons & (kSoftwareThermal | kHardwareThermal)) != 0 ||
                         ((reasons & kHardwareSlowdown) != 0 && !gpu.slowed_by_power);
  }
  unsigned int corrected = 0;
  unsigned int uncorrected = 0;
  unsigned int pending = 0;
  unsigned int failed = 0;
  if (nvml.rows != nullptr && nvml.rows(device, &corrected, &uncorrected, &pending, &failed) == 0) {
    gpu.rows_pending = pending != 0;
    gpu.rows_failed = failed != 0;
  }
  return gpu;
}

// NVML is not shut down, nor the library closed: the process ends soon.
GpuHealth ask_nvml() {
  NvmlFunctions nvml;
  if (!load(nvml)) return {};
  if (const int failed = nvml.init(); failed != 0) {
    if (failed == kNvmlNoDriver) return {};
    return {.error = "NVML does not start: error " + std::to_string(failed)};
  }
  unsigned int count = 0;
  if (const int failed = nvml.count(&count); failed != 0)
    return {.error = "NVML does not count its GPUs: error " + std::to_string(failed)};
  GpuHealth health;
  for (unsigned int i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (const int failed = nvml.handle(i, &device); failed != 0) {
      health.error =
          "NVML does not find GPU " + std::to_string(i) + ": error " + std::to_string(failed);
      return health;
    }
    health.gpus.push_back(facts_of(nvml, device));
  }
  return health;
}

}  // namespace

GpuHealth gpu_health() {
  auto answer = std::make_shared<std::promise<GpuHealth>>();
  std::future<GpuHealth> health = answer->get_future();
  std::thread([answer] { answer->set_value(ask_nvml()); }).detach();
  if (health.wait_for(std::chrono::seconds(kNvmlSeconds)) == std::future_status::ready)
    return health.get();
  return {.error = "NVML has not answered within " + std::to_string(kNvmlSeconds) + " s"};
}

}  // namespace muster::ctl

#include "musterctl/gpu_health.h"

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/system/nvml.h"

namespace muster::ctl {
namespace {

// nvmlClocksThrottleReasons... of nvml.h, CUDA 12.
constexpr unsigned long long kHardwareSlowdown = 0x08;
constexpr unsigned long long kSoftwareThermal = 0x20;
constexpr unsigned long long kHardwareThermal = 0x40;
constexpr unsigned long long kPowerBrake = 0x80;

// A value that the GPU does not support stays that of a healthy GPU.
GpuFacts facts_of(const Nvml& nvml, Nvml::Device device) {
  GpuFacts gpu;
  gpu.name = nvml.name(device);
  gpu.uncorrected_errors = nvml.uncorrected_errors(device).value_or(0);
  const unsigned long long reasons = nvml.slowdown_reasons(device).value_or(0);
  gpu.slowed_by_power = (reasons & kPowerBrake) != 0;
  gpu.slowed_by_heat = (reasons & (kSoftwareThermal | kHardwareThermal)) != 0 ||
                       ((reasons & kHardwareSlowdown) != 0 && !gpu.slowed_by_power);
  if (const auto rows = nvml.remapped_rows(device)) {
    gpu.rows_pending = rows->pending;
    gpu.rows_failed = rows->failed;
  }
  return gpu;
}

GpuHealth ask_nvml() {
  const Nvml nvml;
  if (!nvml.is_installed() || nvml.start_error() == Nvml::kDriverNotLoaded) return {};
  if (const int failed = nvml.start_error(); failed != 0)
    return {.error = "NVML does not start: error " + std::to_string(failed)};
  unsigned int count = 0;
  if (const int failed = nvml.count(count); failed != 0)
    return {.error = "NVML does not count its GPUs: error " + std::to_string(failed)};
  GpuHealth health;
  for (unsigned int i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    if (const int failed = nvml.device(i, device); failed != 0) {
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

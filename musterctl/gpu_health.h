// The health of this machine's GPUs, as NVIDIA's driver reports it by NVML. NVML is loaded at run
// time, if it is installed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::ctl {

struct GpuFacts {
  std::string name;
  std::uint64_t uncorrected_errors = 0;  // Memory errors (ECC) since the driver was loaded.
  bool rows_pending = false;             // The next reset will replace bad rows of memory.
  bool rows_failed = false;              // No spare rows were left to replace bad ones.
  bool slowed_by_heat = false;
  bool slowed_by_power = false;  // The machine's power supply has asked for it.
};
struct GpuHealth {
  std::string error;  // Why NVML does not answer; empty: it does, or it is not installed.
  std::vector<GpuFacts> gpus;
};

/// Returns within kNvmlSeconds, even if the driver hangs: a thread of its own asks the driver, and
/// is left behind if it gets no answer in time.
inline constexpr int kNvmlSeconds = 15;
GpuHealth gpu_health();

}  // namespace muster::ctl

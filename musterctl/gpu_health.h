// What NVIDIA's driver says of the GPUs of this machine, by NVML, which is loaded where it is
// there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::ctl {

struct GpuFacts {
  std::string name;
  std::uint64_t uncorrected_errors = 0;  // Of its memory (ECC), since the driver was loaded.
  bool rows_pending = false;             // Bad rows of memory are replaced at the next reset.
  bool rows_failed = false;              // There were no spare ones left for them.
  bool slowed_by_heat = false;
  bool slowed_by_power = false;  // The machine's power supply has asked for it.
};
struct GpuHealth {
  std::string error;  // Why NVML says nothing; empty: it does, or there is none.
  std::vector<GpuFacts> gpus;
};

/// Whatever the driver does, this comes back within kNvmlSeconds: a driver that hangs is asked on a
/// thread that is left behind.
inline constexpr int kNvmlSeconds = 15;
GpuHealth gpu_health();

}  // namespace muster::ctl

// Reads Xids, the errors of GPUs that NVIDIA's driver writes to the kernel's log. NVML does not
// report past errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::ctl {

/// All lines of the log about one GPU with the same number.
struct Xid {
  std::string device;  // The GPU's PCI address, as the driver writes it: "0000:3b:00".
  unsigned number = 0;
  unsigned times = 0;
  double last_seconds = 0;  // The newest line's time, since the machine was started.
  std::string text;         // The newest line's text, without the process.
};
struct GpuErrors {
  std::string error;  // Why the log cannot be read; empty: it was read.
  std::vector<Xid> xids;
  double now_seconds = 0;  // Since the machine was started.
};

inline constexpr std::size_t kMaxXids = 64;       // Further ones are left out.
inline constexpr std::size_t kMaxXidBytes = 200;  // Of each text; the rest is cut off.
inline constexpr const char* kKernelLog = "/dev/kmsg";

/// `log`: lines in the format of /dev/kmsg, "PRIORITY,NUMBER,MICROSECONDS,FLAGS;MESSAGE".
std::vector<Xid> xids_in(std::string_view log);
GpuErrors gpu_errors(const std::string& path = kKernelLog);

}  // namespace muster::ctl

// The errors of GPUs that NVIDIA's driver has written into the kernel's log: Xids. NVML does not
// tell past ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::ctl {

/// All lines of one GPU with one number.
struct Xid {
  std::string device;  // Its PCI address, as the driver writes it: "0000:3b:00".
  unsigned number = 0;
  unsigned times = 0;
  double last_seconds = 0;  // Of the newest one, since the machine was started.
  std::string text;         // Of the newest one, without the process.
};
struct GpuErrors {
  std::string error;  // Why the log cannot be read; empty: it can.
  std::vector<Xid> xids;
  double now_seconds = 0;  // Since the machine was started.
};

inline constexpr std::size_t kMaxXids = 64;       // Others are left out.
inline constexpr std::size_t kMaxXidBytes = 200;  // Of one text; the rest is cut off.
inline constexpr const char* kKernelLog = "/dev/kmsg";

/// `log`: lines as /dev/kmsg has them, "PRIORITY,NUMBER,MICROSECONDS,FLAGS;MESSAGE".
std::vector<Xid> xids_in(std::string_view log);
GpuErrors gpu_errors(const std::string& path = kKernelLog);

}  // namespace muster::ctl

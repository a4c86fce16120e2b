// The CPU time and the memory of another process, read from /proc.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace muster::bench {

struct ProcessUse {
  double cpu_s = 0;  // User and system time of the living threads.
  double rss_mb = 0;
  double peak_rss_mb = 0;  // Since the start of the process.
};

/// Returns zeros for pid 0.
inline ProcessUse use_of(int pid) {
  ProcessUse use;
  if (pid == 0) return use;
  const std::string proc = "/proc/" + std::to_string(pid);
  for (const auto& task : std::filesystem::directory_iterator(proc + "/task")) {
    double nanoseconds = 0;  // schedstat has exact times. stat would only have ticks.
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    use.cpu_s += nanoseconds / 1e9;
  }
  std::ifstream status(proc + "/status");
  for (std::string field; status >> field;) {
    double kib = 0;
    if (field == "VmRSS:" && status >> kib) use.rss_mb = kib * 1024 / 1e6;
    if (field == "VmHWM:" && status >> kib) use.peak_rss_mb = kib * 1024 / 1e6;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return use;
}

}  // namespace muster::bench

// Reads the limits that this process's cgroups set: memory, processor time, number of processes.
// Understands cgroup v1, v2, and machines that have both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// A limit that is not set, or cannot be read, has no value.
struct CgroupLimits {
  std::optional<std::uint64_t> memory_max;
  /// The memory that counts against memory_max, without pages of files: the kernel frees those
  /// before it kills a process. Nothing without memory_max.
  std::optional<std::uint64_t> memory_used;
  std::optional<double> cores;
  std::optional<std::uint64_t> pids_max;
};

/// The smallest limit of the process's cgroups and their ancestors counts. `proc_cgroup` is the
/// text of /proc/self/cgroup, `mount` is /sys/fs/cgroup except in tests.
CgroupLimits read_cgroup_limits(std::string_view proc_cgroup, const std::string& mount);

/// The limits of this process.
CgroupLimits own_cgroup_limits();

}  // namespace muster

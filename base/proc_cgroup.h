// Finds a process's cgroup in the text of /proc/PID/cgroup, for cgroup v1, v2 and both at once.
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// The cgroup of a process for one controller, such as "memory".
struct ControllerCgroup {
  std::string path;    // "/job/step", from the mount point on.
  bool is_v2 = false;  // The path is in the unified hierarchy, which has all other controllers.
  bool operator==(const ControllerCgroup&) const = default;
};

/// Reads a line "4:memory:/job/step" (v1, which takes precedence if both exist) or "0::/job/step"
/// (v2). Empty if the text has neither.
std::optional<ControllerCgroup> controller_cgroup(std::string_view proc_cgroup,
                                                  std::string_view controller);

/// In cgroup v1 a memory limit from here on means no limit: the kernel's value depends on the size
/// of a page (PAGE_COUNTER_MAX).
inline constexpr long long kNoMemoryLimitV1 = 1LL << 60;

}  // namespace muster

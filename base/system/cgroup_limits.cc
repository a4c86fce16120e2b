#include "base/system/cgroup_limits.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/proc_cgroup.h"
#include "base/system/first_line.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(const fs::path& path) {
  const std::string line = first_line(path);
  if (line.empty() || line.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;  // The file has "max" or "-1", or does not exist.
  return std::strtoull(line.c_str(), nullptr, 10);
}

template <typename Number>
bool is_lower(const std::optional<Number>& found, const std::optional<Number>& lowest) {
  return found && (!lowest || *found < *lowest);
}

// Pages of files in memory.stat, descendants included. Pages of /dev/shm are not among them, as the
// kernel cannot free those.
std::uint64_t file_bytes(const fs::path& folder, bool is_v2) {
  const std::string prefix = is_v2 ? "" : "total_";
  std::ifstream file(folder / "memory.stat");
  std::uint64_t bytes = 0;
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;)
    if (name == prefix + "active_file" || name == prefix + "inactive_file") bytes += value;
  return bytes;
}

void read_memory(const fs::path& folder, bool is_v2, CgroupLimits& limits) {
  const auto max = number_in(folder / (is_v2 ? "memory.max" : "memory.limit_in_bytes"));
  if (!max || !is_lower(max, limits.memory_max)) return;
  if (!is_v2 && *max >= static_cast<std::uint64_t>(kNoMemoryLimitV1)) return;
  limits.memory_max = max;
  limits.memory_used = number_in(folder / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
  // The two files are read one after the other, and may not fit together.
  if (limits.memory_used)
    *limits.memory_used -= std::min(*limits.memory_used, file_bytes(folder, is_v2));
}

void read_cores(const fs::path& folder, bool is_v2, CgroupLimits& limits) {
  const std::string both = is_v2 ? first_line(folder / "cpu.max")
                                 : first_line(folder / "cpu.cfs_quota_us") + " " +
                                       first_line(folder / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;  // v1 has the quota -1 for no limit, v2 the word "max".
  if (std::sscanf(both.c_str(), "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0)
    return;
  const std::optional<double> cores(quota / period);
  if (is_lower(cores, limits.cores)) limits.cores = cores;
}

void read_pids(const fs::path& folder, bool, CgroupLimits& limits) {
  const auto pids = number_in(folder / "pids.max");
  if (is_lower(pids, limits.pids_max)) limits.pids_max = pids;
}

using Read = void (*)(const fs::path& folder, bool is_v2, CgroupLimits& limits);

// In a container the path may be the host's, but the mount begins at the container's cgroup. Then
// only the last folder, the mount itself, exists.
void read_controller(std::string_view proc_cgroup, const std::string& mount, const char* controller,
                     Read read, CgroupLimits& limits) {
  const auto cgroup = controller_cgroup(proc_cgroup, controller);
  if (!cgroup) return;
  const std::string top = cgroup->is_v2 ? mount : mount + "/" + controller;
  for (fs::path folder = top + cgroup->path; folder.string().size() > top.size();
       folder = folder.parent_path())
    read(folder, cgroup->is_v2, limits);
  read(top, cgroup->is_v2, limits);
}

}  // namespace

CgroupLimits read_cgroup_limits(std::string_view proc_cgroup, const std::string& mount) {
  CgroupLimits limits;
  read_controller(proc_cgroup, mount, "memory", read_memory, limits);
  read_controller(proc_cgroup, mount, "cpu", read_cores, limits);
  read_controller(proc_cgroup, mount, "pids", read_pids, limits);
  return limits;
}

CgroupLimits own_cgroup_limits() {
  std::ifstream file("/proc/self/cgroup");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return read_cgroup_limits(text, "/sys/fs/cgroup");
}

}  // namespace muster

#include "agent/io/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "agent/posix/process_scan.h"
#include "base/proc_cgroup.h"

namespace muster {
namespace {

constexpr std::size_t kMaxFileBytes = 64 << 10;
constexpr std::size_t kMaxRecordBytes = 8 << 10;  // Linux: CONSOLE_EXT_LOG_MAX of printk.
constexpr int kMaxRecords = 1 << 20;              // More than any buffer of the kernel holds.

std::string read_all(const std::string& path) {
  return read_proc_file(path.c_str(), kMaxFileBytes);
}

std::optional<std::int64_t> kills_of(const std::string& dir, bool is_v2) {
  return oom_kill_count(read_all(dir + (is_v2 ? "/memory.events" : "/memory.oom_control")));
}

std::optional<std::int64_t> limit_of(const std::string& dir, bool is_v2) {
  const std::string text = read_all(dir + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  std::int64_t bytes = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), bytes).ec != std::errc{})
    return std::nullopt;  // "max": no limit.
  return bytes < kNoMemoryLimitV1 ? std::optional(bytes) : std::nullopt;
}

// Adds the kernel log's next lines about killed processes.
void read_kernel_lines(const OwnedFd& log, std::vector<std::string>& lines) {
  std::array<char, kMaxRecordBytes> record{};
  for (int i = 0; i < kMaxRecords && log.is_open(); ++i) {
    const ssize_t n = ::read(log.get(), record.data(), record.size());
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // Overwritten: read the next one.
    if (n <= 0) break;
    const auto message = kernel_message({record.data(), static_cast<std::size_t>(n)});
    if (message && oom_victim(message->text)) lines.emplace_back(message->text);
  }
}

}  // namespace

void OomWatch::begin() {
  if (!kernel_log_.is_open())
    kernel_log_ = OwnedFd(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ::lseek(kernel_log_.get(), 0, SEEK_END);
  kernel_lines_.clear();
  dir_.clear();
  const auto cgroup = controller_cgroup(read_all("/proc/self/cgroup"), "memory");
  if (!cgroup) return;
  is_v2_ = cgroup->is_v2;
  // In a container the path may be the host's, but the mount begins at the container's cgroup.
  const std::string mount = is_v2_ ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
  for (const std::string& dir : {mount + cgroup->path, mount}) {
    const auto kills = kills_of(dir, is_v2_);
    if (!kills) continue;
    dir_ = dir;
    kills_ = *kills;
    return;
  }
}

OomFacts OomWatch::facts() const {
  OomFacts facts;
  read_kernel_lines(kernel_log_, kernel_lines_);
  facts.kernel_lines = kernel_lines_;
  if (dir_.empty()) return facts;
  facts.cgroup_dir = dir_;
  facts.limit_bytes = limit_of(dir_, is_v2_);
  facts.kills = kills_of(dir_, is_v2_).value_or(kills_) - kills_;
  return facts;
}

}  // namespace muster

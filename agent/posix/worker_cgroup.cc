#include "agent/posix/worker_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "agent/posix/process_scan.h"

namespace muster {
namespace {

constexpr std::size_t kCgroupBytesMax = 16 << 10;  // The most that is read of /proc/self/cgroup.

/// systemd marks cgroups that it has delegated: the system's manager with the first attribute, a
/// user's manager with the second.
bool is_marked_delegated(const std::string& dir) {
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    char value = 0;
    if (::getxattr(dir.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

/// The directory of muster's own cgroup; empty if it is not delegated, or if the kernel cannot kill
/// whole cgroups (before Linux 5.14).
std::string delegated_cgroup() {
  const std::string text = read_proc_file("/proc/self/cgroup", kCgroupBytesMax);
  const std::string path(unified_cgroup(text));
  if (path.empty()) return {};
  for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    const std::string dir = path == "/" ? mount : mount + path;
    // The root of all cgroups has no such file. The cgroup that a container sees as root has it.
    if (::access((dir + "/cgroup.kill").c_str(), W_OK) != 0) continue;
    return path == "/" || is_marked_delegated(dir) ? dir : std::string();
  }
  return {};
}

}  // namespace

std::string_view unified_cgroup(std::string_view text) {
  constexpr std::string_view kUnified = "0::";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(kUnified)) return line.substr(kUnified.size());
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

WorkerCgroup::WorkerCgroup(const std::string& name) {
  const std::string own = name.empty() ? name : delegated_cgroup();
  if (!own.empty()) dir_ = own + "/" + name;
}

int WorkerCgroup::open() {
  if (is_tried_ || dir_.empty()) return fd_.get();
  is_tried_ = true;
  if (::mkdir(dir_.c_str(), 0755) != 0) {
    dir_.clear();  // kill() and remove() must not reach a cgroup that is not this job's.
    return -1;
  }
  fd_ = OwnedFd(::open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return fd_.get();
}

void WorkerCgroup::add(pid_t pid) {
  if (open() < 0) return;
  const OwnedFd fd(::open((dir_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(pid);
  // An error is ignored, as for a cold worker: the process stays in muster's own cgroup.
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), text.data(), text.size());
}

void WorkerCgroup::kill() const {
  if (dir_.empty()) return;
  const OwnedFd fd(::open((dir_ + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  // An error is ignored: the scans that follow find the processes.
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), "1", 1);
}

void WorkerCgroup::remove() const {
  if (!dir_.empty()) ::rmdir(dir_.c_str());
}

}  // namespace muster

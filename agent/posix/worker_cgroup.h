// A cgroup for the workers of one job. It exists if muster's own cgroup is delegated to muster
// (systemd's Delegate=yes; a container's own tree). The kernel then kills all workers in one step,
// however fast they fork, and also if they have changed parents, sessions or environment.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/system/owned_fd.h"

namespace muster {

class WorkerCgroup {
 public:
  /// Describes the cgroup with this name, and creates nothing. The front, the shim and the agent of
  /// a job use the same name, which no other job has. Empty: the job has no cgroup.
  explicit WorkerCgroup(const std::string& name);

  /// Creates the cgroup at the first call. Returns a descriptor for CLONE_INTO_CGROUP that this
  /// object owns; -1: muster cannot have a cgroup here, or another job has one of this name.
  int open();
  /// Moves a process into the cgroup, if there is one, and creates it before.
  void add(pid_t pid);
  /// Kills all processes in the cgroup. Does nothing if the cgroup was never created.
  void kill() const;
  /// Removes the cgroup if it has no process.
  void remove() const;

 private:
  std::string dir_;  // Empty: muster's own cgroup is not delegated, or is another job's.
  OwnedFd fd_;
  bool is_tried_ = false;
};

/// The path of the cgroup v2 in the text of /proc/PID/cgroup; empty: there is none.
std::string_view unified_cgroup(std::string_view text);

}  // namespace muster

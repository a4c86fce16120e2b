// A cgroup for the workers of one job, where muster's own cgroup was given to it to divide up
// (systemd's Delegate=yes; a container's own tree). The kernel then ends all of them in one step,
// however fast they fork and whatever they have left: parents, sessions, environment.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "rendezvous/net/owned_fd.h"

namespace muster {

class WorkerCgroup {
 public:
  /// The cgroup of the job whose shim is this process, which may be gone: it has the same name for
  /// the front, the shim and the agent. Makes nothing.
  explicit WorkerCgroup(pid_t shim);

  /// Makes it, at the first call. A descriptor for CLONE_INTO_CGROUP, which stays this object's;
  /// -1: there is none here.
  int open();
  /// Kills all that is in it. Nothing happens if it was never made.
  void kill() const;
  /// Removes it, if nobody is left in it.
  void remove() const;

 private:
  std::string dir_;  // Empty: muster has no cgroup that it may divide.
  OwnedFd fd_;
  bool is_tried_ = false;
};

/// The path of cgroup v2 in the text of /proc/PID/cgroup; empty: there is none.
std::string_view unified_cgroup(std::string_view text);

}  // namespace muster

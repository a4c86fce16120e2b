// System calls that a program of muster cannot do without, and that a container may refuse: a
// seccomp profile may answer any call with EPERM or ENOSYS.
#pragma once

#include <optional>
#include <string>

namespace muster {

struct RefusedCall {
  std::string name;
  int error = 0;  // errno.
  std::string what = "run";
  std::string advice = "A container's seccomp profile must allow this system call";

  /// "cannot run on this system (Linux 6.1.0): epoll_ctl: Operation not permitted. A container's
  /// ..."
  std::string text() const;
};

/// Makes the calls of loops, sockets and threads once, and returns the first one that this system
/// refuses. A call that fails for another reason, such as a limit, is not refused: its error is
/// reported where it matters.
std::optional<RefusedCall> refused_call();

}  // namespace muster

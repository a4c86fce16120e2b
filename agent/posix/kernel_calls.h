// System calls for which older C libraries have no function, or that a container may refuse: the
// packages need only glibc 2.17, and a seccomp profile may answer any call with EPERM or ENOSYS.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace muster {

/// Makes a file in memory, close-on-exec. /proc shows it with this name. Where memfd_create is
/// refused, it is a file without a name in the first temporary place that can be used. -1 with
/// errno.
int make_memory_file(const char* name);

/// Sends a signal to the process if `is_it` returns true. With a pidfd, which is opened before that
/// call, no other process can get the signal. Where pidfds are refused or no descriptor is left,
/// the process that has this pid at the moment gets it. False: it was not sent.
bool signal_if(pid_t pid, int number, const std::function<bool()>& is_it);

/// Checks that this system allows the calls that muster cannot do without. If not, returns a
/// sentence that names the call.
std::optional<std::string> missing_kernel_feature();

}  // namespace muster

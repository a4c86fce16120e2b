// System calls for which older C libraries have no function: the packages need only glibc 2.17.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace muster {

/// Makes a file in memory, close-on-exec. /proc shows it with this name. -1 with errno.
inline int make_memory_file(const char* name) {
  constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC, linux/memfd.h.
  return static_cast<int>(::syscall(SYS_memfd_create, name, kCloseOnExec));
}

/// Checks that this kernel has the calls with which muster watches and signals processes: pidfds,
/// and waitid() for them (Linux 5.4). If not, returns a sentence that names the missing call.
std::optional<std::string> missing_kernel_feature();

}  // namespace muster

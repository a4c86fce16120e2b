// System calls that older C libraries have no function for: packages need glibc 2.17 only.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace muster {

/// A file in memory, close-on-exec, under this name in /proc; -1 and errno.
inline int make_memory_file(const char* name) {
  constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC, linux/memfd.h.
  return static_cast<int>(::syscall(SYS_memfd_create, name, kCloseOnExec));
}

/// Whether this kernel has what muster watches and signals processes with: pidfds, and waitid() for
/// them (Linux 5.4). If not, a sentence that says what is missing.
std::optional<std::string> missing_kernel_feature();

}  // namespace muster

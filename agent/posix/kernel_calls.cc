#include "agent/posix/kernel_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <vector>

#include "base/system/owned_fd.h"
#include "base/system/refused_call.h"
#include "base/temporary_places.h"

namespace muster {

int make_memory_file(const char* name) {
  constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC, linux/memfd.h.
  const long file = ::syscall(SYS_memfd_create, name, kCloseOnExec);
  if (file >= 0 || (errno != EPERM && errno != ENOSYS && errno != EACCES))
    return static_cast<int>(file);
  std::vector<std::string> places = temporary_places([](const char* variable) {
    const char* value = ::getenv(variable);
    return std::string(value == nullptr ? "" : value);
  });
  places.insert(places.begin(), "/dev/shm");
  for (const std::string& place : places) {
    std::string path = place + "/" + name + ".XXXXXX";
    const int fd = ::mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) continue;
    ::unlink(path.c_str());
    return fd;
  }
  return -1;
}

bool signal_if(pid_t pid, int number, const std::function<bool()>& is_it) {
  const OwnedFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.is_open() && (errno == ESRCH || errno == EINVAL)) return false;
  if (!is_it()) return false;
  if (pidfd.is_open()) {
    if (::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0) == 0) return true;
    if (errno != EPERM && errno != ENOSYS) return false;
  }
  return ::kill(pid, number) == 0;
}

std::optional<std::string> missing_kernel_feature() {
  const auto sentence = [](const RefusedCall& call) { return "muster " + call.text(); };
  // Kernels that know P_PIDFD look for a pidfd with this number. Others know no such id type.
  siginfo_t info{};
  if (::waitid(P_PIDFD, std::numeric_limits<int>::max(), &info, WEXITED | WNOHANG) != 0 &&
      errno != EBADF && errno != ECHILD) {
    RefusedCall watch{"waitid(P_PIDFD)", errno, "watch processes"};
    if (errno == EINVAL) watch.advice = "It needs Linux 5.4 or newer";
    return sentence(watch);
  }
  int death_signal = 0;
  if (::prctl(PR_GET_PDEATHSIG, &death_signal) != 0 && (errno == EPERM || errno == ENOSYS))
    return sentence({"prctl", errno});
  if (const auto refused = refused_call()) return sentence(*refused);
  return std::nullopt;
}

}  // namespace muster

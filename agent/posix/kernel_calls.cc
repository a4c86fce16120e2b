#include "agent/posix/kernel_calls.h"

#include <signal.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <cerrno>

#include <boost/system/error_code.hpp>

namespace muster {
namespace {

std::string sentence(const char* call, int number) {
  utsname system{};
  ::uname(&system);
  const boost::system::error_code error(number, boost::system::system_category());
  return std::string("muster cannot watch processes on this system (Linux ")
      .append(system.release)
      .append("): ")
      .append(call)
      .append(": ")
      .append(error.message())
      .append(". It needs Linux 5.4 or newer; a container must also allow this system call");
}

}  // namespace

std::optional<std::string> missing_kernel_feature() {
  const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (self < 0) return sentence("pidfd_open", errno);
  std::optional<std::string> missing;
  siginfo_t info{};
  if (::syscall(SYS_pidfd_send_signal, self, 0, nullptr, 0) != 0) {
    missing = sentence("pidfd_send_signal", errno);
    // ECHILD: the kernel supports P_PIDFD, and this process is not its own child.
  } else if (::waitid(P_PIDFD, static_cast<id_t>(self), &info, WEXITED | WNOHANG) != 0 &&
             errno != ECHILD) {
    missing = sentence("waitid(P_PIDFD)", errno);
  }
  ::close(self);
  return missing;
}

}  // namespace muster

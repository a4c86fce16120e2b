#include "agent/posix/kernel_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <vector>

#include <boost/system/error_code.hpp>

#include "rendezvous/core/temporary_places.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {
namespace {

std::string sentence(const char* what, const char* call, int number, const char* advice) {
  utsname system{};
  ::uname(&system);
  const boost::system::error_code error(number, boost::system::system_category());
  return std::string("muster cannot ")
      .append(what)
      .append(" on this system (Linux ")
      .append(system.release)
      .append("): ")
      .append(call)
      .append(": ")
      .append(error.message())
      .append(". ")
      .append(advice);
}

constexpr const char* kAllow = "A container's seccomp profile must allow this system call";

/// Which of the calls around descriptors is refused; null: none. A process without a free
/// descriptor gets other errors, and reports them where they matter.
const char* refused_call() {
  sigset_t none;
  ::sigemptyset(&none);
  const auto is_refused = [](int result) {
    return result < 0 && (errno == EPERM || errno == ENOSYS);
  };
  const OwnedFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (is_refused(epoll.get())) return "epoll_create1";
  const OwnedFd event(::eventfd(0, EFD_CLOEXEC));
  if (is_refused(event.get())) return "eventfd2";
  epoll_event wanted{};
  if (is_refused(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wanted))) return "epoll_ctl";
  if (is_refused(::epoll_wait(epoll.get(), &wanted, 1, 0))) return "epoll_wait";
  const OwnedFd signals(::signalfd(-1, &none, SFD_CLOEXEC));
  if (is_refused(signals.get())) return "signalfd4";
  const OwnedFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (is_refused(timer.get())) return "timerfd_create";
  const itimerspec never{};
  if (is_refused(::timerfd_settime(timer.get(), 0, &never, nullptr))) return "timerfd_settime";
  std::array<int, 2> ends{-1, -1};
  if (is_refused(::pipe2(ends.data(), O_CLOEXEC))) return "pipe2";
  const OwnedFd reader(ends[0]);
  const OwnedFd writer(ends[1]);
  // Asio makes descriptors non-blocking with it, and the log thread asks how much is in a pipe.
  int number = 0;
  if (is_refused(::ioctl(reader.get(), FIONREAD, &number)) ||
      is_refused(::ioctl(reader.get(), FIONBIO, &number)))
    return "ioctl";
  int death_signal = 0;
  if (is_refused(::prctl(PR_GET_PDEATHSIG, &death_signal))) return "prctl";
  return nullptr;
}

}  // namespace

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
  // Kernels that know P_PIDFD look for a pidfd with this number. Others know no such id type.
  siginfo_t info{};
  if (::waitid(P_PIDFD, std::numeric_limits<int>::max(), &info, WEXITED | WNOHANG) != 0 &&
      errno != EBADF && errno != ECHILD)
    return sentence("watch processes", "waitid(P_PIDFD)", errno,
                    errno == EINVAL ? "It needs Linux 5.4 or newer" : kAllow);
  if (const char* call = refused_call()) return sentence("run", call, errno, kAllow);
  // The C library starts threads with clone3 and, only after ENOSYS, with clone. Without arguments
  // the call itself fails with EINVAL.
  constexpr long kClone3 = 435;  // SYS_clone3, on every architecture.
  if (::syscall(kClone3, nullptr, 0) != 0 && errno == EPERM)
    return sentence("start threads", "clone3", EPERM,
                    "A container's seccomp profile must allow this system call, or answer it with "
                    "ENOSYS");
  return std::nullopt;
}

}  // namespace muster

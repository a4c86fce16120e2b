#include "agent/posix/bounded_child.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "agent/core/watched_time.h"
#include "agent/posix/clocks.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

using namespace std::chrono_literals;

namespace {

bool has_ended(pid_t child, siginfo_t& info) {
  info = {};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG) == 0 &&
         info.si_pid == child;
}

}  // namespace

bool run_in_bounded_child(const std::function<void()>& work, std::chrono::milliseconds limit) {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  siginfo_t info{};
  const OwnedFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (pidfd.is_open()) {
    pollfd ended{pidfd.get(), POLLIN, 0};
    WatchedWait wait(monotonic_now());
    while (wait.look(monotonic_now()) < limit &&
           ::poll(&ended, 1, static_cast<int>(wait.until_next_look(limit) / 1ms) + 1) == 0) {
    }
  } else {  // No descriptor is left: looks, and looks again.
    for (auto waited = limit; waited.count() > 0 && !has_ended(child, info);
         waited -= std::chrono::milliseconds(10))
      ::poll(nullptr, 0, 10);
  }
  if (info.si_pid != child && !has_ended(child, info)) {
    ::kill(child, SIGKILL);  // Not reaped, so the number is still its own.
    return false;
  }
  return info.si_code == CLD_EXITED && info.si_status == 0;
}

}  // namespace muster

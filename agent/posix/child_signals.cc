#include "agent/posix/child_signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <array>

namespace muster {

sigset_t child_only() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  return child;
}

int open_child_signals() {
  const sigset_t child = child_only();
  return ::signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
}

void drain(int signal_fd) {
  std::array<signalfd_siginfo, 16> infos;
  while (::read(signal_fd, infos.data(), sizeof infos) > 0) {
  }
}

void wait_for_child(std::chrono::milliseconds limit) {
  const timespec timeout{limit.count() / 1000, limit.count() % 1000 * 1'000'000L};
  const sigset_t child = child_only();
  ::sigtimedwait(&child, nullptr, &timeout);
}

}  // namespace muster

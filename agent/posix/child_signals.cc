#include "agent/posix/child_signals.h"

#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

namespace muster {

sigset_t signal_set(int number) {
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, number);
  return one;
}

int open_signals(const sigset_t& set) {
  return ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

std::vector<EndSignal> read_signals(int signal_fd) {
  std::vector<EndSignal> signals;
  signalfd_siginfo info{};
  while (::read(signal_fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    if (info.ssi_signo != SIGCHLD)
      signals.push_back(
          {.number = static_cast<int>(info.ssi_signo), .from_kernel = info.ssi_code == SI_KERNEL});
  return signals;
}

void wait_for_child(std::chrono::milliseconds limit) {
  const timespec timeout{limit.count() / 1000, limit.count() % 1000 * 1'000'000L};
  const sigset_t child = signal_set(SIGCHLD);
  ::sigtimedwait(&child, nullptr, &timeout);
}

std::string describe_end(const siginfo_t& info) {
  const std::string number = std::to_string(info.si_status);
  if (info.si_code == CLD_EXITED) return "ended with status " + number;
  return "was killed by signal " + number + " (" + ::strsignal(info.si_status) + ")";
}

}  // namespace muster

#include "agent/posix/child_signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace muster {
namespace {

/// What take_signals_of_all_threads() tells the handler. Written before the handler is installed.
pid_t taker_process = 0;
pid_t taker_thread = 0;

/// Runs in a thread that is not the taker's, which has blocked the signal.
void pass_on_to_taker(int number, siginfo_t* received, void* /*context*/) {
  const int saved_errno = errno;
  siginfo_t info{};
  info.si_signo = number;
  info.si_code = SI_QUEUE;  // The kernel lets no process pass on another code to its own thread.
  info.si_pid = taker_process;
  info.si_value.sival_int = received->si_code == SI_KERNEL ? 1 : 0;
  ::syscall(SYS_rt_tgsigqueueinfo, taker_process, taker_thread, number, &info);
  errno = saved_errno;
}

/// Whether the kernel sent the signal, as for a key of the terminal.
bool is_from_kernel(const signalfd_siginfo& info) {
  if (info.ssi_code == SI_KERNEL) return true;
  return info.ssi_code == SI_QUEUE && static_cast<pid_t>(info.ssi_pid) == ::getpid() &&
         info.ssi_int == 1;
}

}  // namespace

void take_signals_of_all_threads(const sigset_t& set) {
  taker_process = ::getpid();
  taker_thread = static_cast<pid_t>(::syscall(SYS_gettid));
  struct sigaction action {};
  action.sa_sigaction = pass_on_to_taker;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  for (int number = 1; number < NSIG; ++number)
    if (::sigismember(&set, number) == 1) ::sigaction(number, &action, nullptr);
}

void stop_taking_signals(const sigset_t& set) {
  for (int number = 1; number < NSIG; ++number)
    if (::sigismember(&set, number) == 1) ::signal(number, SIG_DFL);
}

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
          {.number = static_cast<int>(info.ssi_signo), .from_kernel = is_from_kernel(info)});
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

#include "agent/posix/front.h"

#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "agent/posix/bounded_child.h"
#include "agent/posix/job_cleanup.h"

namespace muster {
namespace {

// For what may lie on a file server that is gone.
constexpr std::chrono::milliseconds kTidyLimit{2000};

class Front {
 public:
  explicit Front(const FrontSetup& setup)
      : setup_(setup), signal_fd_(::signalfd(-1, &setup.watched, SFD_CLOEXEC)) {}

  int run() {
    while (!shim_is_gone()) {
      signalfd_siginfo info{};
      if (::read(signal_fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) {
        if (errno == EINTR) continue;
        wait_for_shim();  // Without signals (no descriptor was left), but to its end.
        break;
      }
      take_signal(static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL);
    }
    return finish();
  }

 private:
  /// Reaps, orphans that came to us included.
  bool shim_is_gone() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) break;
      if (info.si_pid == setup_.shim) shim_status_ = info;
    }
    return shim_status_.si_pid != 0;
  }

  void wait_for_shim() {
    while (::waitid(P_PID, static_cast<id_t>(setup_.shim), &shim_status_, WEXITED) != 0 &&
           errno == EINTR) {
    }
  }

  void take_signal(int number, bool from_kernel) {
    if (number == SIGCHLD) return;  // The caller reaps.
    if (number != SIGTSTP) return tell({FrontMessage::Kind::Signal, number, from_kernel ? 1 : 0});
    // Ctrl-Z: the workers are in other sessions, where the terminal cannot stop them.
    tell({FrontMessage::Kind::Stop, 0});
    ::raise(SIGSTOP);
    tell({FrontMessage::Kind::Continue, 0});  // Somebody continued us.
  }

  // A full queue means a shim that does not answer: further signals would not change that.
  void tell(const FrontMessage& message) {
    ::send(setup_.socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  int finish() {
    Outcome outcome;
    if (!receive(outcome)) {
      kill_descendants(setup_.spared, WorkerCgroup(setup_.shim));
      explain_lost_shim();
      run_in_bounded_child(setup_.tidy, kTidyLimit);
      return 1;
    }
    if (outcome.is_tidy == 0) run_in_bounded_child(setup_.tidy, kTidyLimit);
    if (outcome.exit_signal != 0) die_of(outcome.exit_signal);
    return outcome.exit_code;
  }

  // A signal that the shim did not read any more resets the connection: the first recv() says that,
  // and the next one has what the shim sent before.
  bool receive(Outcome& outcome) const {
    ssize_t n = 0;
    do {
      n = ::recv(setup_.socket, &outcome, sizeof outcome, MSG_DONTWAIT);
    } while (n < 0 && (errno == ECONNRESET || errno == EINTR));
    return n == static_cast<ssize_t>(sizeof outcome);
  }

  void explain_lost_shim() const {
    if (shim_status_.si_code == CLD_EXITED)
      ::dprintf(2, "muster: the shim (pid %d) ended with status %d; all workers were killed\n",
                setup_.shim, shim_status_.si_status);
    else
      ::dprintf(2,
                "muster: the shim (pid %d) was killed by signal %d (%s); all workers were killed\n",
                setup_.shim, shim_status_.si_status, ::strsignal(shim_status_.si_status));
  }

  static void die_of(int number) {
    ::signal(number, SIG_DFL);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, number);
    ::raise(number);
    ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  }

  const FrontSetup& setup_;
  const int signal_fd_;
  siginfo_t shim_status_{};
};

}  // namespace

int run_front(const FrontSetup& setup) {
  return Front(setup).run();
}

}  // namespace muster

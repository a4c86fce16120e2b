#include "agent/posix/front.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/posix/bounded_child.h"
#include "agent/posix/child_signals.h"
#include "agent/posix/job_cleanup.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/terminal_mode.h"

namespace muster {
namespace {

sigset_t without(sigset_t set, int number) {
  ::sigdelset(&set, number);
  return set;
}

class Front {
 public:
  explicit Front(const FrontSetup& setup)
      : setup_(setup),
        signal_fd_(open_signals(setup.stops ? without(setup.watched, SIGTSTP) : setup.watched)),
        stop_fd_(setup.stops ? open_signals(signal_set(SIGTSTP)) : -1) {}

  int run() {
    while (!shim_is_gone()) {
      if (signal_fd_ < 0) {  // No descriptor was left.
        wait_for_shim();
        break;
      }
      std::array<pollfd, 2> events{{{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}}};
      ::poll(events.data(), events.size(), -1);
      if ((events[0].revents & POLLIN) != 0)
        pass_on(read_signals(signal_fd_));
      else if ((events[1].revents & POLLIN) != 0)
        stop_the_job();
    }
    return finish();
  }

 private:
  /// Reaps all children that have ended, including orphans of the job.
  bool shim_is_gone() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) break;
      if (info.si_pid == setup_.shim) shim_status_ = info;
      spared_.erase(info.si_pid);  // From now on a process of the job may get this pid.
    }
    return shim_status_.si_pid != 0;
  }

  void wait_for_shim() {
    while (::waitid(P_PID, static_cast<id_t>(setup_.shim), &shim_status_, WEXITED) != 0 &&
           errno == EINTR) {
    }
  }

  void pass_on(const std::vector<EndSignal>& signals) {
    for (const EndSignal& signal : signals) {
      if (is_ignored_key(signal)) continue;
      if (setup_.resizes && signal.number == SIGWINCH) {
        send({FrontMessage::Kind::Resize});
        continue;
      }
      send({FrontMessage::Kind::Signal, signal.number, signal.from_kernel ? 1 : 0});
    }
  }

  /// The key was meant for another program, such as a `tail` of the log.
  bool is_ignored_key(const EndSignal& signal) {
    const bool is_key = signal.number == SIGINT || signal.number == SIGQUIT;
    if (!setup_.ignores_keys || !signal.from_kernel || !is_key) return false;
    if (!std::exchange(key_explained_, true))
      print_to_stderr(
          "muster: a key of the terminal does not end this job, which runs under nohup: kill " +
          std::to_string(::getpid()) + " does\n");
    return true;
  }

  /// Ctrl-Z: the terminal cannot stop the workers itself, as they are in other sessions.
  ///
  /// SIGTSTP stays pending until the workers have been told, and then it stops the front. If
  /// SIGCONT arrives in between, as after the loss of the terminal, the kernel discards SIGTSTP. It
  /// also does nothing if no shell is left that could continue the front.
  void stop_the_job() {
    const sigset_t stop = signal_set(SIGTSTP);
    send({FrontMessage::Kind::Stop, 0});
    ::signal(SIGTSTP, SIG_DFL);
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
    take_signals_of_all_threads(stop);
    send({FrontMessage::Kind::Continue, 0});
  }

  // If the queue is full, the message is dropped: the shim does not answer, and one more signal
  // would not change that.
  void send(const FrontMessage& message) {
    [[maybe_unused]] const auto error = send_message(setup_.socket, message);
  }

  int finish() {
    const auto received = receive_message<Outcome>(setup_.socket);
    const bool succeeded =
        received && received->message.exit_code == 0 && received->message.exit_signal == 0;
    // A worker that succeeds may leave the terminal as it likes (stty).
    if (!succeeded && terminal_.restore())
      print_to_stderr("muster: a worker had left the terminal in another mode: it is as before\n");
    if (!received) {
      kill_descendants(spared_, WorkerCgroup(setup_.cgroup));
      explain_lost_shim();
      setup_.remove_files();
      return 1;
    }
    const Outcome& outcome = received->message;
    if (outcome.files_removed == 0) setup_.remove_files();
    const int signal = outcome.exit_signal;
    const bool stops = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
    if (stops) return 128 + signal;  // By default these stop a process, and do not end it.
    if (signal != 0) die_of(signal);
    return outcome.exit_code;
  }

  void explain_lost_shim() const {
    const EndCause cause = shim_lost("the shim (pid " + std::to_string(setup_.shim) + ") " +
                                     describe_end(shim_status_) + "; all workers were killed");
    print_to_stderr("muster: " + cause.text + "\n");
    setup_.report_lost_process({.cause = cause});
  }

  static void die_of(int number) {
    ::signal(number, SIG_DFL);
    const sigset_t one = signal_set(number);
    ::raise(number);
    ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  }

  const FrontSetup& setup_;
  const int signal_fd_;
  const int stop_fd_;  // Readable while SIGTSTP is pending. Not read: the signal stays pending.
  const TerminalMode terminal_;
  bool key_explained_ = false;
  siginfo_t shim_status_{};
  std::set<pid_t> spared_ = setup_.spared;  // The spared children that have not ended.
};

}  // namespace

int run_front(const FrontSetup& setup) {
  return Front(setup).run();
}

}  // namespace muster

#include "agent/posix/shim.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "agent/posix/process_scan.h"
#include "agent/posix/shim_protocol.h"

namespace muster {
namespace {

constexpr int kKillSeconds = 30;      // A process in an uninterruptible wait may outlast this.
constexpr int kRescanMs = 20;         // While killing: for what was born during the last scan.
constexpr int kAgentEndMs = 2000;     // From its last word to its end.
constexpr int kSignalsUntilKill = 3;  // So that an agent that hangs cannot make us deaf.

std::int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::int64_t monotonic_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1'000'000;
}

struct Worker {
  int number = 0;  // The agent's name for it.
  int pidfd = -1;
};

class Shim {
 public:
  Shim(pid_t agent, int socket, int signal_fd, SignalState worker_signals, std::set<pid_t> spared,
       int request_signal)
      : agent_(agent),
        socket_(socket),
        signal_fd_(signal_fd),
        request_signal_(request_signal),
        worker_signals_(worker_signals),
        spared_(std::move(spared)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    watch(signal_fd_, EPOLLIN);
    watch(socket_, EPOLLIN);
  }

  int run() {
    while (!ended_) {
      std::array<epoll_event, 64> events;
      const int n = ::epoll_wait(epoll_, events.data(), events.size(), killing_ ? kRescanMs : -1);
      for (int i = 0; i < n; ++i)
        if (events[static_cast<std::size_t>(i)].data.fd == signal_fd_) take_signals();
      reap();
      take_requests();
      if (agent_reaped_ && !ended_) lose_agent();  // Only now: its last word may have been there.
      if (killing_) kill_step();
      flush();
    }
    return finish();
  }

 private:
  void watch(int fd, std::uint32_t what) {
    epoll_event event{};
    event.events = what;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
      ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
  }

  // --- what the agent asks for ---------------------------------------------------------------

  void take_requests() {
    while (!ended_ && !agent_gone_) {
      const Result<ReceivedRequest> received = receive_request(socket_);
      if (!received) {
        if (received.error().value() == EAGAIN) return;
        return lose_agent();  // It closed its end, or speaks another version.
      }
      carry_out(received->request, received->fds);
      for (const int fd : received->fds)
        ::close(fd);
    }
  }

  void carry_out(const ShimRequest& request, const std::vector<int>& fds) {
    switch (request.kind) {
      case ShimRequest::Kind::Start:
        return agent_reaped_ ? void() : start(request, fds);
      case ShimRequest::Kind::Signal:
        return signal_workers(request.number, request.worker);
      case ShimRequest::Kind::KillAll:
        return begin_kill();
      case ShimRequest::Kind::End:
        ended_ = true;
        exit_code_ = request.exit_code;
        exit_signal_ = request.number;
        return;
    }
  }

  void start(const ShimRequest& request, const std::vector<int>& fds) {
    ShimReport report{.kind = ShimReport::Kind::StartFailed, .worker = request.worker};
    report.step = static_cast<int>(SpawnStep::Exec);
    report.error = EPROTO;
    const std::optional<PackedCommand> command =
        fds.empty() ? std::nullopt : PackedCommand::map(fds[0]);
    if (command) {
      SpawnOptions options{command->path(), command->argv(), command->env(), {-1, -1, -1}, nullptr};
      options.signals = &worker_signals_;
      options.cpu_mask = command->cpu_mask();
      std::size_t next = 1;
      for (std::size_t stream = 0; stream < 3; ++stream)
        if ((request.streams >> stream & 1U) != 0 && next < fds.size())
          options.fds[stream] = fds[next++];
      const Spawned child = spawn(options);
      report.error = child.error;
      report.step = static_cast<int>(child.step);
      if (child.error == 0) {
        report.kind = ShimReport::Kind::Started;
        report.pid = child.pid;
        workers_[child.pid] = Worker{request.worker, child.pidfd};
        watch(child.pidfd, EPOLLIN);
      }
    }
    report.wall_ns = wall_ns();
    outbox_.push_back(report);
  }

  void signal_workers(int number, std::optional<int> only) {
    // Not reaped yet, so no pid here can be another process's already.
    for (const auto& [pid, worker] : workers_)
      if (!only || worker.number == *only) ::kill(-pid, number);
  }

  // --- what happens to us --------------------------------------------------------------------

  void take_signals() {
    std::array<signalfd_siginfo, 16> infos;
    for (;;) {
      const ssize_t n = ::read(signal_fd_, infos.data(), sizeof infos);
      if (n <= 0) return;
      for (std::size_t i = 0; i < static_cast<std::size_t>(n) / sizeof infos[0]; ++i) {
        const int number = static_cast<int>(infos[i].ssi_signo);
        if (number == SIGCHLD) continue;  // The caller reaps anyway.
        if (number == SIGTSTP)
          stop_like_a_shell_job();
        else
          report_signal(number);
      }
    }
  }

  void report_signal(int number) {
    if (number != request_signal_ && ++signals_ >= kSignalsUntilKill) begin_kill();
    for (ShimReport& waiting : outbox_) {
      if (waiting.kind != ShimReport::Kind::Signalled || waiting.status != number) continue;
      ++waiting.count;
      return;
    }
    ShimReport report{.kind = ShimReport::Kind::Signalled};
    report.status = number;
    report.count = 1;
    report.wall_ns = wall_ns();
    outbox_.push_back(report);
  }

  // Ctrl-Z: the workers are in other sessions, where the terminal cannot stop them.
  void stop_like_a_shell_job() {
    signal_workers(SIGSTOP, std::nullopt);
    ::raise(SIGSTOP);
    signal_workers(SIGCONT, std::nullopt);  // Somebody continued us.
  }

  void reap() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return;
      if (info.si_pid == agent_) {
        agent_status_ = info;
        agent_reaped_ = true;
        continue;
      }
      const auto found = workers_.find(info.si_pid);
      if (found == workers_.end()) continue;  // An orphan that came to us, the subreaper.
      ShimReport report{.kind = ShimReport::Kind::Exited, .worker = found->second.number};
      report.pid = info.si_pid;
      report.code = info.si_code;
      report.status = info.si_status;
      report.wall_ns = wall_ns();
      outbox_.push_back(report);
      // What is left of its group would outlive it: P7 of torchrun's known bugs.
      ::close(found->second.pidfd);
      workers_.erase(found);
    }
  }

  void flush() {
    while (!outbox_.empty() && !agent_gone_) {
      const auto error = send_report(socket_, outbox_.front());
      if (error.value() == EAGAIN) return watch(socket_, EPOLLIN | EPOLLOUT);
      if (error) return;  // The agent is ending; its death is reported by itself.
      outbox_.pop_front();
      if (outbox_.empty()) watch(socket_, EPOLLIN);
    }
  }

  void lose_agent() {
    if (agent_gone_) return;
    agent_gone_ = true;
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_, nullptr);
    begin_kill();
  }

  // --- killing to the last descendant --------------------------------------------------------

  void begin_kill() {
    if (killing_) return;
    killing_ = true;
    kill_until_ms_ = monotonic_ms() + kKillSeconds * 1000;
  }

  /// Kills whoever is there; the next child's death, or a moment, brings us here again.
  void kill_step() {
    pid_t left = 0;
    if (has_descendants()) {
      for (const Process& process : descendants(::getpid(), spared())) {
        ::kill(process.pid, SIGKILL);
        left = process.pid;
      }
      reap();
      if (has_descendants() && monotonic_ms() < kill_until_ms_) return;
    }
    killing_ = false;
    if (agent_gone_) {
      ended_ = true;
      exit_code_ = 1;
      return;
    }
    ShimReport report{.kind = ShimReport::Kind::AllGone};
    report.pid = has_descendants() ? left : 0;
    report.wall_ns = wall_ns();
    outbox_.push_back(report);
  }

  bool has_descendants() const {
    const std::set<pid_t> mine = own_children();
    return std::any_of(mine.begin(), mine.end(),
                       [this](pid_t pid) { return pid != agent_ && !spared_.contains(pid); });
  }

  std::set<pid_t> spared() const {
    std::set<pid_t> pids = spared_;
    pids.insert(agent_);
    return pids;
  }

  // --- the end -------------------------------------------------------------------------------

  int finish() {
    kill_leftovers();
    wait_for_agent();
    if (agent_gone_) {
      explain_lost_agent();
      return exit_code_;
    }
    if (exit_signal_ != 0) die_of(exit_signal_);
    return exit_code_;
  }

  void kill_leftovers() {
    const std::int64_t until = monotonic_ms() + kKillSeconds * 1000;
    for (reap(); has_descendants() && monotonic_ms() < until; reap()) {
      for (const Process& process : descendants(::getpid(), spared()))
        ::kill(process.pid, SIGKILL);
      wait_for_child(kRescanMs);
    }
  }

  void wait_for_agent() {
    const std::int64_t until = monotonic_ms() + kAgentEndMs;
    for (reap(); !agent_reaped_ && monotonic_ms() < until; reap())
      wait_for_child(kRescanMs);
    if (!agent_reaped_) ::kill(agent_, SIGKILL);
  }

  void wait_for_child(int timeout_ms) {
    const timespec timeout{0, timeout_ms * 1'000'000L};
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigtimedwait(&child, nullptr, &timeout);
  }

  void explain_lost_agent() const {
    if (agent_status_.si_pid == 0) {
      ::dprintf(2, "muster: the agent (pid %d) stopped answering; all workers were killed\n",
                agent_);
    } else if (agent_status_.si_code == CLD_EXITED) {
      ::dprintf(2, "muster: the agent (pid %d) ended with status %d; all workers were killed\n",
                agent_, agent_status_.si_status);
    } else {
      ::dprintf(
          2, "muster: the agent (pid %d) was killed by signal %d (%s); all workers were killed\n",
          agent_, agent_status_.si_status, ::strsignal(agent_status_.si_status));
    }
  }

  static void die_of(int number) {
    ::signal(number, SIG_DFL);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, number);
    ::raise(number);
    ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  }

  const pid_t agent_;
  const int socket_;
  const int signal_fd_;
  const int request_signal_;
  const SignalState worker_signals_;
  const std::set<pid_t> spared_;  // Children from before we were muster: `helper & exec muster`.
  const int epoll_;
  std::map<pid_t, Worker> workers_;  // Alive, or dead and not yet reaped.
  std::deque<ShimReport> outbox_;    // At most two for each worker, and one for each signal.
  siginfo_t agent_status_{};
  std::int64_t kill_until_ms_ = 0;
  int signals_ = 0;
  int exit_code_ = 0;
  int exit_signal_ = 0;
  bool agent_gone_ = false;
  bool agent_reaped_ = false;
  bool killing_ = false;
  bool ended_ = false;
};

// Descriptors 0 to 2 must exist: another file's would be taken for a worker's standard stream.
void open_missing_standard_streams() {
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

bool is_ignored(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

/// The signals that the shim reads from a descriptor.
sigset_t watched_signals(const ShimOptions& options) {
  sigset_t watched;
  ::sigemptyset(&watched);
  ::sigaddset(&watched, SIGCHLD);
  if (!is_ignored(SIGTSTP)) ::sigaddset(&watched, SIGTSTP);
  for (const int number : options.signals)
    if (number != SIGHUP || !is_ignored(SIGHUP)) ::sigaddset(&watched, number);
  const int request = options.request_signal;
  if (request != 0 && !is_ignored(request)) ::sigaddset(&watched, request);
  return watched;
}

// As a worker of torchrun has it: what was blocked or ignored stays so, but for the signals that a
// Python process handles or resets before it starts another.
SignalState signals_for_workers(const sigset_t& watched) {
  SignalState state;
  ::sigprocmask(SIG_SETMASK, nullptr, &state.mask);
  ::sigemptyset(&state.ignored);
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGPIPE || number == SIGXFSZ || ::sigismember(&watched, number) == 1) continue;
    if (is_ignored(number)) ::sigaddset(&state.ignored, number);
  }
  return state;
}

// The terminal and the job's process group must not reach it: the shim tells it what it got.
void become_agent(const ShimOptions& options) {
  ::setsid();
  ::prctl(PR_SET_NAME, "muster-agent");
  ::signal(SIGPIPE, SIG_IGN);
  for (const int number : options.signals)
    ::signal(number, SIG_IGN);
  if (options.request_signal != 0) ::signal(options.request_signal, SIG_IGN);
}

}  // namespace

int split_into_shim_and_agent(const ShimOptions& options,
                              const std::function<int(int socket)>& agent_main) {
  open_missing_standard_streams();
  const Result<std::pair<int, int>> pair = make_shim_pair();
  if (!pair) {
    std::fprintf(stderr, "muster: socketpair: %s\n", pair.error().message().c_str());
    return 1;
  }
  const sigset_t watched = watched_signals(options);
  const SignalState worker_signals = signals_for_workers(watched);
  const std::set<pid_t> spared = own_children();
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  const pid_t agent = ::fork();
  if (agent < 0) {
    std::fprintf(stderr, "muster: fork: %s\n", std::strerror(errno));
    return 1;
  }
  if (agent == 0) {
    ::close(pair->first);
    become_agent(options);
    ::sigprocmask(SIG_SETMASK, &worker_signals.mask, nullptr);
    std::_Exit(agent_main(pair->second));
  }
  ::close(pair->second);
  const int signal_fd = ::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  return Shim(agent, pair->first, signal_fd, worker_signals, spared, options.request_signal).run();
}

}  // namespace muster

#include "agent/posix/shim.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "agent/posix/front.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/shim_protocol.h"

namespace muster {
namespace {

constexpr std::int64_t kKillSeconds = 30;  // A process in an uninterruptible wait may outlast this.
constexpr int kRescanMs = 20;              // While killing: for what was born during the last scan.
constexpr int kAgentEndMs = 2000;          // From its last word to its end.
constexpr int kSignalsUntilKill = 3;       // So that an agent that hangs cannot make us deaf.

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
  explicit Shim(const ShimSetup& setup)
      : setup_(setup),
        agent_(setup.agent),
        socket_(setup.agent_socket),
        signal_fd_(child_signals()),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    watch(signal_fd_, EPOLLIN);
    watch(socket_, EPOLLIN);
    watch(setup_.front_socket, EPOLLIN);
  }

  void run() {
    while (!ended_) {
      std::array<epoll_event, 64> events;
      const int n = ::epoll_wait(epoll_, events.data(), events.size(), killing_ ? kRescanMs : -1);
      for (int i = 0; i < n; ++i)
        take_event(events[static_cast<std::size_t>(i)].data.fd);
      reap();
      take_front_messages();
      take_requests();
      if (agent_reaped_ && !ended_) lose_agent();  // Only now: its last word may have been there.
      if (killing_) kill_step();
      flush();
    }
    finish();
  }

 private:
  static int child_signals() {
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    return ::signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
  }

  // epoll hands out pidfds in the order in which their processes died, waitid its oldest child
  // first: who failed first is known only from here.
  void take_event(int fd) {
    if (fd == signal_fd_) return take_signals();
    if (fd != socket_ && fd != setup_.front_socket) reap_next(P_PIDFD, static_cast<id_t>(fd));
  }

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
        return tell_workers(request.number, request.worker);
      case ShimRequest::Kind::KillAll:
        return begin_kill();
      case ShimRequest::Kind::End:
        ended_ = true;
        outcome_ = {.exit_code = request.exit_code, .exit_signal = request.number};
        return;
    }
  }

  void start(const ShimRequest& request, const std::vector<int>& fds) {
    ShimReport report{.kind = ShimReport::Kind::StartFailed, .worker = request.worker};
    report.step = static_cast<int>(SpawnStep::Exec);
    report.error = EPROTO;
    const auto fds_wanted = 1 + static_cast<std::size_t>(std::popcount(request.streams));
    if (fds.size() < fds_wanted) report.error = EMFILE;  // The kernel dropped some.
    const std::optional<PackedCommand> command =
        fds.size() < fds_wanted ? std::nullopt : PackedCommand::map(fds[0]);
    if (command) {
      SpawnOptions options{command->path(), command->argv(), command->env(), {-1, -1, -1}, nullptr};
      options.signals = &setup_.worker_signals;
      options.file_limit = &setup_.worker_files;
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

  /// Sends it to all that live, or to one if it lives, and says who that was.
  void tell_workers(int number, std::optional<int> only = std::nullopt) {
    reap();  // Who is dead already did not die of this.
    for (const auto& [pid, worker] : workers_) {
      if (only && worker.number != *only) continue;
      ShimReport report{.kind = ShimReport::Kind::Told, .worker = worker.number};
      report.pid = pid;
      report.status = number;
      report.code = can_outlive(pid, number) ? 1 : 0;
      report.wall_ns = wall_ns();
      ::kill(-pid, number);
      outbox_.push_back(report);
    }
  }

  void signal_workers(int number) {
    // Not reaped yet, so no pid here can be another process's already.
    for (const auto& [pid, worker] : workers_)
      ::kill(-pid, number);
  }

  // --- what happens to us --------------------------------------------------------------------

  // They say only that somebody has ended: the caller reaps.
  void take_signals() {
    std::array<signalfd_siginfo, 16> infos;
    while (::read(signal_fd_, infos.data(), sizeof infos) > 0) {
    }
  }

  void take_front_messages() {
    while (!ended_) {
      FrontMessage message;
      const ssize_t n = ::recv(setup_.front_socket, &message, sizeof message, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return lose_front();
      if (message.kind == FrontMessage::Kind::Signal)
        report_signal(message.number);
      else  // As a shell's job does: its members stop without being asked, and go on.
        signal_workers(message.kind == FrontMessage::Kind::Stop ? SIGSTOP : SIGCONT);
    }
  }

  void report_signal(int number) {
    if (number != setup_.request_signal && ++signals_ >= kSignalsUntilKill) begin_kill();
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

  void reap() {
    while (reap_next(P_ALL, 0)) {
    }
  }

  /// False if none of them is dead.
  bool reap_next(idtype_t which, id_t id) {
    siginfo_t info{};
    if (::waitid(which, id, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return false;
    if (info.si_pid == agent_) {
      agent_status_ = info;
      agent_reaped_ = true;
      return true;
    }
    const auto found = workers_.find(info.si_pid);
    if (found == workers_.end()) return true;  // An orphan that came to us, the subreaper.
    ShimReport report{.kind = ShimReport::Kind::Exited, .worker = found->second.number};
    report.pid = info.si_pid;
    report.code = info.si_code;
    report.status = info.si_status;
    report.wall_ns = wall_ns();
    outbox_.push_back(report);
    // What is left of its group would outlive it: P7 of torchrun's known bugs.
    ::close(found->second.pidfd);
    workers_.erase(found);
    return true;
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

  // Nobody waits for an outcome any more: what is left of the job ends now.
  void lose_front() {
    front_gone_ = true;
    ended_ = true;
  }

  // --- killing to the last descendant --------------------------------------------------------

  void begin_kill() {
    if (killing_) return;
    killing_ = true;
    tell_workers(SIGKILL);
    kill_until_ms_ = monotonic_ms() + kKillSeconds * 1000;
  }

  /// Kills whoever is there; the next child's death, or a moment, brings us here again.
  void kill_step() {
    pid_t left = 0;
    if (has_descendants()) {
      signal_workers(SIGKILL);  // All that can be done where there is no /proc.
      for (const Process& process : descendants(::getpid(), {agent_})) {
        ::kill(process.pid, SIGKILL);
        left = process.pid;
      }
      reap();
      if (has_descendants() && monotonic_ms() < kill_until_ms_) return;
    }
    killing_ = false;
    if (agent_gone_) {
      ended_ = true;
      outcome_ = {.exit_code = 1};
      return;
    }
    ShimReport report{.kind = ShimReport::Kind::AllGone};
    report.pid = has_descendants() ? left : 0;
    report.wall_ns = wall_ns();
    outbox_.push_back(report);
  }

  bool has_descendants() const {
    if (!workers_.empty()) return true;
    const std::set<pid_t> mine = own_children();
    return std::any_of(mine.begin(), mine.end(), [this](pid_t pid) { return pid != agent_; });
  }

  // --- the end -------------------------------------------------------------------------------

  void finish() {
    kill_leftovers();
    if (front_gone_) ::close(socket_);  // The agent tidies, and ends.
    wait_for_agent();
    if (agent_gone_) explain_lost_agent();
    ::send(setup_.front_socket, &outcome_, sizeof outcome_, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void kill_leftovers() {
    const std::int64_t until = monotonic_ms() + kKillSeconds * 1000;
    for (reap(); has_descendants() && monotonic_ms() < until; reap()) {
      signal_workers(SIGKILL);
      for (const Process& process : descendants(::getpid(), {agent_}))
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

  const ShimSetup& setup_;
  const pid_t agent_;
  const int socket_;
  const int signal_fd_;
  const int epoll_;
  std::map<pid_t, Worker> workers_;  // Alive, or dead and not yet reaped.
  std::deque<ShimReport> outbox_;    // A few for each worker, and one for each signal.
  siginfo_t agent_status_{};
  std::int64_t kill_until_ms_ = 0;
  int signals_ = 0;
  Outcome outcome_;
  bool front_gone_ = false;
  bool agent_gone_ = false;
  bool agent_reaped_ = false;
  bool killing_ = false;
  bool ended_ = false;
};

}  // namespace

void run_shim(const ShimSetup& setup) {
  Shim(setup).run();
}

}  // namespace muster

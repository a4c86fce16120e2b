#include "agent/posix/shim.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_watch.h"
#include "agent/core/signal_events.h"
#include "agent/core/watched_time.h"
#include "agent/posix/bounded_child.h"
#include "agent/posix/child_signals.h"
#include "agent/posix/clocks.h"
#include "agent/posix/front.h"
#include "agent/posix/job_cleanup.h"
#include "agent/posix/lost_agent.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/report_queue.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/shim_reports.h"
#include "agent/posix/start_worker.h"
#include "rendezvous/core/limit_advice.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr Duration kKillLimit = 30s;  // A process in an uninterruptible wait may outlast this.
constexpr Duration kImpatientKillLimit = 3s;  // The same, after a third signal.
constexpr int kKillRescanMs = 20;        // While killing: for what was born during the last scan.
constexpr Duration kAgentEndLimit = 2s;  // From its last word to its end.
constexpr int kSignalsUntilKill = 3;     // So that an agent that hangs cannot make us deaf.
constexpr std::chrono::milliseconds kReportLimit{5000};  // For files on a server that may be gone.

struct Worker {
  int number = 0;  // The agent's name for it.
  int rank = 0;    // Global.
  OwnedFd pidfd;
  OwnedFd status;                      // Of begin_spawn(), until it has answered.
  std::shared_ptr<const void> memory;  // The same, until the program runs.
  int signal_after_start = 0;          // What it is to get then; 0: nothing.
  bool has_failed = false;             // The program could not be executed: it is ending.
  std::vector<OutputReader> readers;   // So that it can write on when the agent is gone.
};

class Shim {
 public:
  explicit Shim(const ShimSetup& setup)
      : setup_(setup),
        agent_(setup.agent),
        socket_(setup.agent_socket),
        signal_fd_(open_child_signals()),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  /// False, with a message: there is no descriptor left to work with.
  bool begin() {
    if (signal_fd_ >= 0 && epoll_ >= 0 && watch(signal_fd_, EPOLLIN) && watch(socket_, EPOLLIN) &&
        watch(setup_.front_socket, EPOLLIN))
      return true;
    const int error = errno;
    ::dprintf(2, "muster: the shim cannot wait for events: %s%s\n", std::strerror(error),
              limit_advice(error).c_str());
    lose_agent("could not be supervised");
    return false;
  }

  void run() {
    while (!ended_) {
      std::array<epoll_event, 64> events;
      const int n = ::epoll_wait(epoll_, events.data(), events.size(), timeout_ms());
      for (int i = 0; i < n; ++i)
        take_event(events[static_cast<std::size_t>(i)].data.fd);
      reap();
      take_front_messages();
      take_requests();
      if (agent_reaped_ && !ended_) lose_agent("");  // Its last word may have been there.
      if (agent_gone_ && agent_reaped_) begin_rescue();
      look_at_agent();
      stop_step();
      kill_step();
      flush();
    }
  }

  void finish() {
    if (agent_gone_) begin_rescue();
    kill_leftovers();
    if (front_gone_) ::close(socket_);  // The agent tidies, and ends.
    wait_for_agent();
    if (agent_gone_) {
      // Whoever could write is dead, so it ends at once unless its storage hangs.
      wait_while(kReportLimit, [this] { return rescue_.process() > 0; });
      explain_lost_agent();
    }
    outcome_.is_tidy = !agent_gone_ && agent_reaped_ && agent_status_.si_code == CLD_EXITED &&
                               agent_status_.si_status == 0
                           ? 1
                           : 0;
    ::send(setup_.front_socket, &outcome_, sizeof outcome_, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  int timeout_ms() const {
    if (kill_wait_) return kKillRescanMs;
    const std::int64_t now = monotonic_ms();
    std::int64_t until = look_at_ms_;
    // The agent is gone then, and nobody looks at it any more.
    if (stop_wait_) until = now + stop_wait_->until_next_look(setup_.shutdown_timeout) / 1ms + 1;
    return static_cast<int>(std::clamp<std::int64_t>(until - now, 0, 60'000));
  }

  // epoll hands out pidfds in the order in which their processes died, waitid its oldest child
  // first: who failed first is known only from here.
  void take_event(int fd) {
    if (fd == signal_fd_) return drain(signal_fd_);  // It says only that somebody has ended.
    if (const auto start = starting_.find(fd); start != starting_.end()) {
      const auto worker = workers_.find(start->second);
      return worker == workers_.end() ? void() : finish_start(worker->first, worker->second);
    }
    if (fd != socket_ && fd != setup_.front_socket) reap_next(P_PIDFD, static_cast<id_t>(fd));
  }

  bool watch(int fd, std::uint32_t what) {
    epoll_event event{};
    event.events = what;
    event.data.fd = fd;
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0 ||
           ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0;
  }

  // --- what the agent asks for ---------------------------------------------------------------

  void take_requests() {
    while (!ended_ && !agent_gone_) {
      const Result<ReceivedRequest> received = receive_request(socket_);
      if (!received) {
        if (received.error().value() == EAGAIN) return;
        return lose_agent("");  // It closed its end, or speaks another version.
      }
      carry_out(received->request, received->fds);
    }
  }

  void carry_out(const ShimRequest& request, const std::vector<OwnedFd>& fds) {
    switch (request.kind) {
      case ShimRequest::Kind::Start:
        return start(request, fds);
      case ShimRequest::Kind::Signal:
        return tell_workers(request.number, request.worker);
      case ShimRequest::Kind::SignalProcess:
        return signal_process_of(request.worker, request.number);
      case ShimRequest::Kind::KillAll:
        return begin_kill();
      case ShimRequest::Kind::End:
        ended_ = true;
        outcome_ = {.exit_code = request.exit_code, .exit_signal = request.number};
        return;
      case ShimRequest::Kind::Pong:
        pong_ = request.number;
        return;
    }
  }

  void start(const ShimRequest& request, const std::vector<OwnedFd>& fds) {
    if (agent_reaped_) return;
    BegunWorker begun = begin_worker(request, fds, setup_.workers, cgroup_.open());
    BegunSpawn& child = begun.spawn;
    if (child.error != 0)
      return outbox_.add(start_failed(request.worker, {child.error, child.step}));
    starting_[child.status.get()] = child.pid;
    watch(child.status.get(), EPOLLIN);
    workers_[child.pid] = Worker{.number = request.worker,
                                 .rank = request.number,
                                 .pidfd = std::move(child.pidfd),
                                 .status = std::move(child.status),
                                 .memory = std::move(child.memory),
                                 .readers = std::move(begun.readers)};
  }

  void finish_starts() {
    for (auto& [pid, worker] : workers_)
      if (worker.status.is_open()) finish_start(pid, worker);
  }

  /// Whether the program of a worker runs is known now, or it has ended.
  void finish_start(pid_t pid, Worker& worker) {
    const std::optional<SpawnResult> result = spawn_result(worker.status.get());
    if (!result) return;
    starting_.erase(worker.status.get());
    worker.status.reset();
    worker.has_failed = result->error != 0;
    if (worker.has_failed) return outbox_.add(start_failed(worker.number, *result));
    worker.memory.reset();
    const ShimReport report = started(worker.number, pid);
    records_.started(report, worker.rank);
    watch(worker.pidfd.get(), EPOLLIN);
    outbox_.add(report);
    if (worker.signal_after_start != 0) tell_worker(pid, worker, worker.signal_after_start);
  }

  /// Sends it to all that live, or to one if it lives, and says who that was.
  void tell_workers(int number, std::optional<int> only = std::nullopt) {
    reap();  // Who is dead already did not die of this.
    for (auto& [pid, worker] : workers_)
      if (!only || worker.number == *only) tell_worker(pid, worker, number);
  }

  void tell_worker(pid_t pid, Worker& worker, int number) {
    if (worker.status.is_open()) {  // Not the program yet, but a copy of ours.
      worker.signal_after_start = number;
      if (number == SIGKILL) ::kill(pid, SIGKILL);
      return;
    }
    if (worker.has_failed) return;
    const ShimReport report = told(worker.number, pid, number, can_outlive(pid, number));
    ::kill(-pid, number);
    records_.told(report);
    outbox_.add(report);
  }

  /// Only itself, as if it had failed by its own: so it is not told to end, as victims are.
  void signal_process_of(int number_of_worker, int signal) {
    for (const auto& [pid, worker] : workers_)
      if (worker.number == number_of_worker && !worker.status.is_open())
        ::syscall(SYS_pidfd_send_signal, worker.pidfd.get(), signal, nullptr, 0);
  }

  void signal_workers(int number) {
    // Not reaped yet, so no pid here can be another process's already.
    for (const auto& [pid, worker] : workers_)
      ::kill(worker.status.is_open() ? pid : -pid, number);
  }

  // --- what happens to us --------------------------------------------------------------------

  void take_front_messages() {
    while (!ended_) {
      FrontMessage message;
      const ssize_t n = ::recv(setup_.front_socket, &message, sizeof message, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return lose_front();
      if (message.kind == FrontMessage::Kind::Signal)
        take_signal({message.number, message.from_kernel != 0});
      else  // As a shell's job does: its members stop without being asked, and go on.
        signal_workers(message.kind == FrontMessage::Kind::Stop ? SIGSTOP : SIGCONT);
    }
  }

  void take_signal(const EndSignal& signal) {
    if (signal.number == setup_.request_signal) return outbox_.add_signal(signal.number);
    if (!signals_.begins_event(signal, monotonic_now())) return;
    finish_starts();  // Who may have seen a worker run and sent this finds it started.
    look_at_ms_ = 0;  // From now on the agent has less time for an answer.
    if (signals_.count() >= kSignalsUntilKill || agent_gone_) begin_kill();
    if (signals_.count() >= kSignalsUntilKill) kill_limit_ = kImpatientKillLimit;
    outbox_.add_signal(signal.number);
  }

  void reap() {
    while (reap_next(P_ALL, 0)) {
    }
  }

  /// False if none of them is dead.
  bool reap_next(idtype_t which, id_t id) {
    siginfo_t info{};
    if (::waitid(which, id, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return false;
    if (rescue_.ended(info.si_pid)) return true;
    if (info.si_pid == agent_) {
      agent_status_ = info;
      agent_reaped_ = true;
      return true;
    }
    const auto found = workers_.find(info.si_pid);
    if (found != workers_.end()) on_worker_end(found, info);
    return true;  // Or an orphan that came to us, the subreaper.
  }

  void on_worker_end(std::map<pid_t, Worker>::iterator worker, const siginfo_t& info) {
    if (worker->second.status.is_open()) finish_start(info.si_pid, worker->second);
    if (worker->second.has_failed) return forget(worker);
    const ShimReport report = exited(worker->second.number, info);
    outbox_.add(report);
    records_.ended(report);
    forget(worker);
  }

  void forget(std::map<pid_t, Worker>::iterator worker) {
    if (agent_gone_) rescue_.take(std::move(worker->second.readers));
    // If it is still open, the worker has ended, but something has the other end.
    starting_.erase(worker->second.status.get());
    workers_.erase(worker);
  }

  void flush() {
    if (outbox_.is_empty() || agent_gone_) return;
    const auto error = outbox_.send_to(socket_);
    if (error.value() == EAGAIN) watch(socket_, EPOLLIN | EPOLLOUT);
    if (!error) watch(socket_, EPOLLIN);  // Else the agent ends; its death is reported by itself.
  }

  // --- the agent, if it dies or hangs --------------------------------------------------------

  void look_at_agent() {
    if (agent_gone_ || ended_ || monotonic_ms() < look_at_ms_) return;
    const char state = pong_ == ping_ ? '?' : process_state(agent_);
    const AgentWatch::Look look{.now = monotonic_now(),
                                .answered = pong_ == ping_,
                                .is_stopped = state == 'T' || state == 't',
                                .signals = signals_.count(),
                                .is_killing = kill_wait_.has_value()};
    if (agent_watch_.is_lost(look))
      return lose_agent(look.answered ? "did not end the job" : "stopped answering");
    if (look.answered) {
      outbox_.add({.kind = ShimReport::Kind::Ping, .count = ++ping_});
    }
    look_at_ms_ = monotonic_ms() + agent_watch_.interval(signals_.count()) / 1ms;
  }

  /// `silence`: what it did not do; empty: it has ended, or is about to.
  void lose_agent(const std::string& silence) {
    if (agent_gone_) return;
    agent_gone_ = true;
    silence_ = silence;
    if (!silence.empty() && !agent_reaped_) ::kill(agent_, SIGKILL);  // Its number is its own.
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_, nullptr);
    outbox_.clear();
    if (kill_wait_) return;
    if (signals_.count() >= 2 || workers_.empty()) return begin_kill();
    stop_wait_.emplace(monotonic_now());
    tell_workers(SIGTERM);
  }

  // Not before the agent is dead: two readers of a pipe would mix up its bytes.
  void begin_rescue() {
    for (auto& [pid, worker] : workers_)
      rescue_.take(std::exchange(worker.readers, {}));
    rescue_.begin();
  }

  /// The workers have their time for an end in order, as if the agent had asked them.
  void stop_step() {
    if (!stop_wait_) return;
    if (workers_.empty() || stop_wait_->look(monotonic_now()) >= setup_.shutdown_timeout)
      begin_kill();
  }

  // Nobody waits for an outcome any more: what is left of the job ends now.
  void lose_front() {
    front_gone_ = true;
    ended_ = true;
  }

  // --- killing to the last descendant --------------------------------------------------------

  void begin_kill() {
    if (kill_wait_) return;
    kill_wait_.emplace(monotonic_now());
    stop_wait_.reset();
    killer_.begin();
    tell_workers(SIGKILL);
  }

  /// Kills whoever is there; the next child's death, or a moment, brings us here again.
  void kill_step() {
    if (!kill_wait_) return;
    const bool may_wait = kill_wait_->look(monotonic_now()) < kill_limit_;
    pid_t left = 0;
    if (has_descendants()) {
      signal_workers(SIGKILL);  // All that can be done where there is no /proc.
      left = killer_.round(spared());
      reap();
      if (has_descendants() && may_wait) return;
      if (has_descendants()) kill_limit_ = {};  // The end does not wait for it once more.
    }
    kill_wait_.reset();
    if (agent_gone_) {
      ended_ = true;
      outcome_ = {.exit_code = 1};
      return;
    }
    outbox_.add({.kind = ShimReport::Kind::AllGone,
                 .pid = has_descendants() ? left : 0,
                 .wall_ns = wall_ns()});
  }

  bool has_descendants() const { return !workers_.empty() || has_children_but(spared()); }

  // Once it is reaped, its number may be anybody's.
  std::set<pid_t> spared() const {
    std::set<pid_t> ours;
    if (!agent_reaped_) ours.insert(agent_);
    if (rescue_.process() > 0) ours.insert(rescue_.process());
    return ours;
  }

  // --- the end -------------------------------------------------------------------------------

  void kill_leftovers() {
    wait_while(kill_limit_, [this] {
      if (!has_descendants()) return false;
      signal_workers(SIGKILL);
      killer_.round(spared());
      return true;
    });
    cgroup_.remove();
  }

  void wait_for_agent() {
    wait_while(kAgentEndLimit, [this] { return !agent_reaped_; });
    if (!agent_reaped_) ::kill(agent_, SIGKILL);
  }

  template <typename Condition>
  void wait_while(Duration limit, const Condition& holds) {
    WatchedWait wait(monotonic_now());
    for (reap(); holds() && wait.look(monotonic_now()) < limit; reap())
      wait_for_child(std::chrono::milliseconds(kKillRescanMs));
  }

  void explain_lost_agent() const {
    const LostAgent lost = records_.describe(agent_, agent_status_, silence_);
    ::dprintf(2, "muster: %s; all workers were killed\n", lost.how.c_str());
    run_in_bounded_child([&] { setup_.report_lost_agent(lost); }, kReportLimit);
  }

  const ShimSetup& setup_;
  const pid_t agent_;
  const int socket_;
  const int signal_fd_;
  const int epoll_;
  std::map<pid_t, Worker> workers_;  // Alive, or dead and not yet reaped.
  ReportQueue outbox_;
  siginfo_t agent_status_{};
  std::map<int, pid_t> starting_;  // By the descriptor that tells whether the program runs.
  WorkerRecords records_;
  SignalEvents signals_;
  AgentWatch agent_watch_;
  std::string silence_;
  std::int32_t ping_ = 0;
  std::int32_t pong_ = 0;
  std::int64_t look_at_ms_ = monotonic_ms() + agent_watch_.interval(0) / 1ms;
  std::optional<WatchedWait> stop_wait_;  // The agent is lost; the workers were told to end.
  std::optional<WatchedWait> kill_wait_;  // All descendants are being killed.
  Duration kill_limit_ = kKillLimit;
  WorkerCgroup cgroup_{::getpid()};
  DescendantKiller killer_{cgroup_};
  Outcome outcome_;
  OutputRescue rescue_;
  bool front_gone_ = false;
  bool agent_gone_ = false;
  bool agent_reaped_ = false;
  bool ended_ = false;
};

}  // namespace

void run_shim(const ShimSetup& setup) {
  Shim shim(setup);
  if (shim.begin()) shim.run();
  shim.finish();
}

}  // namespace muster

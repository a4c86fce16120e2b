#include "agent/posix/shim.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_watch.h"
#include "agent/core/forwarded_signals.h"
#include "agent/core/leftovers.h"
#include "agent/core/signal_events.h"
#include "agent/core/watched_time.h"
#include "agent/posix/bounded_child.h"
#include "agent/posix/child_signals.h"
#include "agent/posix/front.h"
#include "agent/posix/job_cleanup.h"
#include "agent/posix/lost_agent.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/report_queue.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/shim_reports.h"
#include "agent/posix/shim_workers.h"
#include "base/limit_advice.h"
#include "base/system/clock.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr Duration kKillLimit = 30s;  // A process in an uninterruptible wait may outlast this.
constexpr Duration kImpatientKillLimit = 3s;  // kKillLimit after a third signal.
constexpr int kKillRescanMs = 20;             // A new scan finds children of the last scan's time.
constexpr Duration kAgentEndLimit = 2s;       // To the agent's SIGKILL, and from that to its end.
constexpr int kSignalsUntilKill = 3;  // Then the shim kills, even if the agent does not react.
constexpr std::chrono::milliseconds kRescueLimit{5000};  // The log files' server may not answer.

// Why nothing is left behind:
// - The shim is a subreaper: each orphan of the job becomes its child. While it has no child but
//   spared() ones, the job has no process.
// - Only reap_next() reaps workers, and it removes them from workers_ (shim_workers.h).
// - Each wait for the agent, the front, a worker or storage has a limit.
class Shim {
 public:
  explicit Shim(const ShimSetup& setup)
      : setup_(setup),
        agent_(setup.agent),
        socket_(setup.agent_socket),
        signal_fd_(open_signals(setup.watched)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  /// False, after a message, if no descriptor is left for the event loop.
  bool begin() {
    if (open_error_ == 0 && watch(signal_fd_, EPOLLIN) && watch(socket_, EPOLLIN) &&
        watch(setup_.front_socket, EPOLLIN))
      return true;
    const int error = open_error_ != 0 ? open_error_ : errno;
    print_to_stderr("muster: the shim cannot wait for events: " +
                    std::string(std::strerror(error)) + limit_advice(error) + "\n");
    on_agent_lost("could not be supervised");
    return false;
  }

  void run() {
    while (!ended_) {
      std::array<epoll_event, 64> events;
      const int n = ::epoll_wait(epoll_, events.data(), events.size(), timeout_ms());
      for (int i = 0; i < n; ++i)
        handle_event(events[static_cast<std::size_t>(i)].data.fd);
      // Before reap(), so that the SIGCHLD of a child that ends after it is not dropped.
      const std::vector<EndSignal> signals = read_signals(signal_fd_);
      reap();
      for (const EndSignal& signal : signals)
        handle_signal(signal, ForwardedSignals::At::Shim);
      receive_front_messages();
      receive_requests();
      // The agent may have sent its final request before it exited: requests are read first.
      if (agent_reaped_ && !ended_) on_agent_lost("");
      if (agent_gone_ && agent_reaped_) begin_rescue();
      forward_step();
      check_agent();
      workers_.signal_spared_groups(now());
      until_zygote_check_ = workers_.check_zygote(now());
      stop_step();
      end_leftovers_step();
      kill_step();
      flush();
    }
  }

  /// Kills what is left, waits for the agent, reports, sends the outcome. Every wait has a limit.
  void finish() {
    workers_.stop_zygote();
    if (agent_gone_) begin_rescue();
    kill_leftovers();
    if (front_gone_) ::close(socket_);  // The agent then removes its files and exits.
    wait_for_agent();
    if (agent_gone_)
      explain_lost_agent();
    else if (front_gone_)
      setup_.report_lost_process(workers_.records().lost_front(setup_.front));
    outcome_.files_removed = !agent_gone_ && agent_reaped_ && agent_status_.si_code == CLD_EXITED &&
                             agent_status_.si_status == 0;
    if (front_gone_ && outcome_.files_removed == 0) {
      // A pipe whose reader lives is not removed.
      wait_while(kAgentEndLimit, [this] { return !agent_reaped_; });
      setup_.remove_files();
    }
    // The agent's own helpers were spared with it: the program of --notice-from leaves its
    // children.
    if (front_gone_) kill_leftovers();
    [[maybe_unused]] const auto error = send_message(setup_.front_socket, outcome_);
  }

 private:
  int timeout_ms() const {
    if (kill_wait_) return kKillRescanMs;
    Duration wait = next_check_ - now();
    // During stop_wait_ the agent is gone, so no check of the agent is due.
    if (stop_wait_) wait = stop_wait_->until_next_check(setup_.shutdown_timeout);
    if (const auto due = forwarded_.next_due()) wait = std::min(wait, *due - now());
    if (leftovers_) wait = std::min(wait, leftovers_->until_next_check());
    if (const auto check = workers_.until_spared_check()) wait = std::min(wait, *check);
    if (until_zygote_check_) wait = std::min(wait, *until_zygote_check_);
    return static_cast<int>(
        std::chrono::ceil<std::chrono::milliseconds>(std::clamp<Duration>(wait, 0ms, 60s)).count());
  }

  // epoll reports pidfds in the order in which their processes ended. waitid(P_ALL) returns the
  // oldest child first. So the order of failures is right only if each pidfd's process is reaped
  // here, before reap() collects all others.
  void handle_event(int fd) {
    if (workers_.on_status(fd)) return;
    if (fd == signal_fd_ || fd == socket_ || fd == setup_.front_socket) return;
    reap_next(P_PIDFD, static_cast<id_t>(fd));
  }

  bool watch(int fd, std::uint32_t what) {
    epoll_event event{};
    event.events = what;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) return true;
    return errno == EEXIST && ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0;
  }

  // --- the agent's requests ------------------------------------------------------------------

  void receive_requests() {
    while (!ended_ && !agent_gone_) {
      auto received = receive_message<ShimRequest>(socket_);
      if (!received) {
        if (received.error().value() == EAGAIN) return;
        return on_agent_lost("");  // The agent closed its end, or sent a packet of another size.
      }
      apply(received->message, received->fds);
    }
  }

  void apply(const ShimRequest& request, std::vector<OwnedFd>& fds) {
    switch (request.kind) {
      case ShimRequest::Kind::Start:
        return start(request, std::move(fds));
      case ShimRequest::Kind::Signal:
        return signal_workers(request.number, std::chrono::milliseconds(request.until_group_ms),
                              request.worker);
      case ShimRequest::Kind::SignalProcess:
        return workers_.signal_process(request.worker, request.number);
      case ShimRequest::Kind::KillAll:
        return end_attempt({std::chrono::milliseconds(request.until_sigterm_ms),
                            std::chrono::milliseconds(request.until_sigkill_ms)});
      case ShimRequest::Kind::End:
        ended_ = true;
        outcome_ = {.exit_code = request.exit_code, .exit_signal = request.number};
        return;
      case ShimRequest::Kind::Pong:
        pong_ = request.number;
        return;
      case ShimRequest::Kind::Keep:
        kept_ = std::move(fds);
        return;
    }
  }

  void start(const ShimRequest& request, std::vector<OwnedFd> fds) {
    if (!agent_reaped_) workers_.start(request, std::move(fds));
  }

  void signal_workers(int number, Duration until_group, std::optional<int> only = std::nullopt) {
    reap();  // A worker that has already ended was not stopped by this signal.
    workers_.signal(number, until_group, only);
  }

  // --- signals, and ends of processes --------------------------------------------------------

  void receive_front_messages() {
    while (!ended_) {
      const auto received = receive_message<FrontMessage>(setup_.front_socket);
      if (!received) {
        if (received.error().value() == EAGAIN) return;
        return on_front_lost();
      }
      const FrontMessage& message = received->message;
      if (message.kind == FrontMessage::Kind::Signal)
        handle_signal({message.number, message.from_kernel != 0}, ForwardedSignals::At::Front);
      else if (message.kind == FrontMessage::Kind::Resize)
        workers_.resize_terminals();
      else
        workers_.stop_or_continue(message.kind == FrontMessage::Kind::Stop);
    }
  }

  void handle_signal(const EndSignal& signal, ForwardedSignals::At at) {
    // The sender may have seen a worker run: that start is reported before the signal.
    workers_.finish_starts();
    if (std::count(setup_.requests.begin(), setup_.requests.end(), signal.number) > 0)
      return outbox_.add_signal(signal.number);
    if (std::count(setup_.forwarded.begin(), setup_.forwarded.end(), signal.number) > 0)
      return forwarded_.arrived(signal.number, at, now());
    if (!signals_.begins_event(signal, now())) return;
    next_check_ = {};  // After a signal the agent has less time to answer.
    // After the agent's loss the workers have had a SIGTERM: the first signal asks for no more.
    if (signals_.count() >= (agent_gone_ ? 2 : kSignalsUntilKill)) begin_kill();
    if (signals_.count() >= kSignalsUntilKill) kill_limit_ = kImpatientKillLimit;
    outbox_.add_signal(signal.number);
  }

  /// Passes on the signals that do not end the job.
  void forward_step() {
    for (const ForwardedSignals::Due& signal : forwarded_.due(now()))
      outbox_.add(forwarded(signal.number, signal.workers_have_it
                                               ? std::nullopt
                                               : std::optional(workers_.forward(signal.number))));
  }

  void reap() {
    while (reap_next(P_ALL, 0)) {
    }
  }

  /// Reaps one child of those that `which` and `id` select. False if none of them has ended.
  bool reap_next(idtype_t which, id_t id) {
    siginfo_t info{};
    // Not reaped yet, so that no other group can have the number of a worker's group.
    if (::waitid(which, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return false;
    workers_.before_reap(info.si_pid);
    if (::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG) != 0)
      return false;
    if (rescue_.handle_child_end(info.si_pid) || workers_.on_zygote_end(info)) return true;
    if (info.si_pid == agent_) {
      agent_status_ = info;
      agent_reaped_ = true;
      return true;
    }
    std::vector<OutputReader> readers;
    if (workers_.on_end(info, readers) && agent_gone_) rescue_.add(std::move(readers));
    return true;  // A child that is no worker is an orphan of the job.
  }

  void flush() {
    if (outbox_.is_empty() || agent_gone_) return;
    const auto error = outbox_.send_to(socket_);
    if (error.value() == EAGAIN) watch(socket_, EPOLLIN | EPOLLOUT);
    if (!error) watch(socket_, EPOLLIN);  // Else the agent is ending: reap() will notice.
  }

  // --- an agent that dies or hangs -----------------------------------------------------------

  void check_agent() {
    if (agent_gone_ || ended_ || now() < next_check_) return;
    const char state = pong_ == ping_ ? '?' : process_state(agent_);
    const AgentWatch::Observation observation{.now = now(),
                                              .answered = pong_ == ping_,
                                              .is_stopped = state == 'T' || state == 't',
                                              .signals = signals_.count(),
                                              .is_killing = kill_wait_ || leftovers_};
    if (agent_watch_.is_lost(observation))
      return on_agent_lost(observation.answered ? "did not end the job" : "stopped answering");
    if (observation.answered) outbox_.add({.kind = ShimReport::Kind::Ping, .count = ++ping_});
    next_check_ = now() + agent_watch_.interval(signals_.count());
  }

  /// `reason`: why the agent must be killed; empty: it has ended, or is ending.
  void on_agent_lost(const std::string& reason) {
    if (agent_gone_) return;
    agent_gone_ = true;
    lost_reason_ = reason;
    if (!reason.empty() && !agent_reaped_) ::kill(agent_, SIGKILL);
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_, nullptr);
    outbox_.clear();
    if (kill_wait_) return;
    if (signals_.count() >= 2) return begin_kill();
    if (workers_.empty()) return end_attempt(setup_.clean_up);
    stop_wait_.emplace(now());
    signal_workers(SIGTERM, setup_.until_group);
  }

  // run() calls this once the agent is dead: two readers of a pipe would mix up its bytes.
  // finish() calls it in any case, as the job is over.
  void begin_rescue() {
    rescue_.add(workers_.take_readers());
    rescue_.begin();
  }

  /// After the loss of the agent: the workers have the shutdown timeout to end, as they would have
  /// from the agent. Then they are killed.
  void stop_step() {
    if (!stop_wait_) return;
    if (workers_.empty() || stop_wait_->advance(now()) >= setup_.shutdown_timeout)
      end_attempt(setup_.clean_up);
  }

  // No process waits for the outcome any more: the loop ends, and finish() kills the job.
  void on_front_lost() {
    front_gone_ = true;
    ended_ = true;
  }

  // --- the end of an attempt, to the last descendant ------------------------------------------

  /// The workers may not live any more. What they have started gets time to end.
  void end_attempt(const LeftoverTimes& times) {
    if (kill_wait_) return;
    if (times.until_sigterm == Duration{} && times.until_sigkill == Duration{}) return begin_kill();
    if (leftovers_) return leftovers_->shorten(times);
    leftovers_.emplace(times, now());
    stop_wait_.reset();
    reap();
    workers_.kill_processes();
  }

  /// Called when a child has ended, or the next stage may begin.
  void end_leftovers_step() {
    if (!leftovers_) return;
    if (!has_descendants()) return finish_attempt(0);
    while (leftovers_) {
      const std::optional<LeftoverStage> stage = leftovers_->advance(now());
      if (!stage) return;
      if (*stage == LeftoverStage::Kill) return begin_kill();
      terminate_leftovers(*stage);
    }
  }

  void terminate_leftovers(LeftoverStage stage) {
    std::vector<Process> left = descendants(::getpid(), spared());
    if (stage == LeftoverStage::Wait) return report_leftovers(left, stage);
    const auto daemons = std::stable_partition(
        left.begin(), left.end(),
        [this](const Process& process) { return workers_.has_session(process.session); });
    if (stage == LeftoverStage::Terminate) {
      leftovers_->terminate(daemons != left.begin(), daemons != left.end());
      left.erase(daemons, left.end());
    } else {
      left.erase(left.begin(), daemons);
    }
    report_leftovers(left, stage);
    for (const Process& process : left)
      signal_process(process, SIGTERM);
  }

  void report_leftovers(const std::vector<Process>& left, LeftoverStage stage) {
    if (left.empty()) return;
    const ShimReport report =
        leftovers(left, stage, leftovers_ ? leftovers_->times().until_sigterm : Duration{});
    if (!agent_gone_)
      outbox_.add(report);
    else
      print_to_stderr("muster: " + text_about_leftovers(report) + "\n");
  }

  void begin_kill() {
    if (kill_wait_) return;
    reap();
    if (workers_.empty() && has_descendants())
      report_leftovers(descendants(::getpid(), spared()), LeftoverStage::Kill);
    kill_wait_.emplace(now());
    leftovers_.reset();
    stop_wait_.reset();
    killer_.begin();
    workers_.signal(SIGKILL, 0ms);
  }

  /// One round of killing. The next one follows when a child has ended, or after kKillRescanMs.
  void kill_step() {
    if (!kill_wait_) return;
    const bool may_wait = kill_wait_->advance(now()) < kill_limit_;
    pid_t left = 0;
    if (has_descendants()) {
      workers_.signal_groups_unreported(SIGKILL);  // Without /proc the killer below finds nothing.
      left = killer_.round(spared());
      reap();
      if (has_descendants() && may_wait) return;
      if (has_descendants()) kill_limit_ = {};  // kill_leftovers() need not wait for them again.
    }
    finish_attempt(has_descendants() ? left : 0);
  }

  /// `left`: a process that could not be killed, or 0.
  void finish_attempt(pid_t left) {
    kill_wait_.reset();
    leftovers_.reset();
    workers_.forget_sessions();
    if (agent_gone_) {
      ended_ = true;
      outcome_ = {.exit_code = 1};
      return;
    }
    outbox_.add(all_gone(left));
  }

  bool has_descendants() const { return !workers_.empty() || has_children_but(spared()); }

  // The children that are not killed. After the agent is reaped another process may have its pid.
  std::set<pid_t> spared() const {
    std::set<pid_t> ours = rescue_.processes();
    if (!agent_reaped_) ours.insert(agent_);
    if (workers_.zygote() > 0) ours.insert(workers_.zygote());
    return ours;
  }

  // --- the end -------------------------------------------------------------------------------

  void kill_leftovers() {
    wait_while(kill_limit_, [this] {
      if (!has_descendants()) return false;
      workers_.signal_groups_unreported(SIGKILL);
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
    WatchedWait wait(now());
    for (reap(); holds() && wait.advance(now()) < limit; reap())
      wait_for_child(std::chrono::milliseconds(kKillRescanMs));
  }

  void explain_lost_agent() {
    // All writers are dead, so the rescue ends at once, unless its storage or console hangs.
    wait_while(kRescueLimit, [this] { return rescue_.begin(); });
    const LostProcess lost = workers_.records().lost_agent(agent_, agent_status_, lost_reason_);
    print_to_stderr(message_about(lost));
    setup_.report_lost_process(lost);
  }

  const ShimSetup& setup_;
  const pid_t agent_;
  const int socket_;
  const int signal_fd_;
  const int epoll_;
  const int open_error_ = signal_fd_ < 0 || epoll_ < 0 ? errno : 0;
  ReportQueue outbox_;
  siginfo_t agent_status_{};
  SignalEvents signals_;
  ForwardedSignals forwarded_;
  AgentWatch agent_watch_;
  std::string lost_reason_;
  std::int32_t ping_ = 0;
  std::int32_t pong_ = 0;
  Instant next_check_ = now() + agent_watch_.interval(0);
  std::optional<WatchedWait> stop_wait_;   // The agent is lost: the workers got SIGTERM.
  std::optional<LeftoverWait> leftovers_;  // The attempt is over: what is left may end by itself.
  std::optional<WatchedWait> kill_wait_;   // The shim is killing all descendants.
  Duration kill_limit_ = kKillLimit;
  WorkerCgroup cgroup_{setup_.cgroup};
  ShimWorkers workers_{
      {.setup = setup_.workers,
       .warm = setup_.warm,
       .cgroup = cgroup_,
       .outbox = outbox_,
       .watch = [this](int fd) { watch(fd, EPOLLIN); },
       .unwatch = [this](int fd) { ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }}};
  std::optional<Duration> until_zygote_check_;
  DescendantKiller killer_{cgroup_};
  Outcome outcome_{.exit_code = 1};
  OutputRescue rescue_;
  std::vector<OwnedFd> kept_;  // ShimRequest::Kind::Keep
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

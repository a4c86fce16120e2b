#include "agent/io/agent.h"

#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/signal_name.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_command.h"
#include "agent/io/event_log.h"
#include "agent/io/failure_output.h"
#include "agent/io/hang_response.h"
#include "agent/io/run_dir.h"
#include "agent/io/shim_link.h"
#include "agent/io/watchdogs.h"
#include "agent/io/worker_channel.h"
#include "agent/io/worker_group.h"
#include "agent/logs/log_pump.h"
#include "agent/posix/helper_process.h"
#include "agent/posix/job_cleanup.h"
#include "agent/posix/shim.h"
#include "agent/sessions/session_choice.h"
#include "agent/sessions/workers_store.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

// For what dead workers left in pipes that a grandchild may still hold.
constexpr Duration kDrainLimit = 2s;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// The loop: feeds the supervisor with what happens, and carries out what it decides.
class Agent {
 public:
  Agent(const AgentOptions& options, std::vector<std::string> environment, RunDir run_dir,
        const TimerFifo* fifo, int socket)
      : options_(options),
        job_(random_name(12)),
        environment_(std::move(environment)),
        timer_(io_),
        link_(io_, socket,
              {.on_report = [this](const ShimReport& report) { on_report(report); },
               .on_lost = [this] { on_shim_lost(); }}),
        event_log_(options, host_name()),
        supervisor_({.local_world_size = options.local_world_size,
                     .max_restarts = options.max_restarts,
                     .stop_timeout = options.shutdown_timeout}),
        run_dir_(std::move(run_dir)),
        hangs_(io_, environment_, options.hang_timeout,
               {.workers = [this] { return stack_targets(); },
                .program = [this] { return group_->program(); },
                .on_hung =
                    [this](LocalRank rank, const std::string& why) {
                      group_->explain(rank, why);
                      feed(WorkerHung{rank});
                    }}),
        fifo_(fifo),
        watchdogs_(io_, environment_, fifo,
                   {.on_reason = [this](LocalRank rank,
                                        const std::string& why) { group_->explain(rank, why); },
                    .on_stuck = [this](LocalRank rank) { feed(WorkerHung{rank}); }}),
        workers_store_(io_, workers_store_options(options)),
        session_(make_session(io_, options, session_handlers())) {}

  int run() {
    if (!prepare()) return 1;
    feed(Begun{});
    io_.run();
    return 0;  // Nobody reads it: the shim knows the outcome already.
  }

 private:
  bool prepare() {
    auto pump =
        LogPump::start({.space = {.max_bytes = options_.log.max_bytes,
                                  .drop_when_full = options_.log.on_full != LogOnFull::Fail,
                                  .on_full = [this](const std::string& reason) {
                                    asio::post(io_, [this, reason] { on_logs_full(reason); });
                                  }}});
    if (!pump) return give_up("cannot start the log thread: " + pump.error().message());
    pump_ = std::move(*pump);
    open_channel();
    group_.emplace(options_,
                   WorkerGroup::Surroundings{environment_, job_, host_name(),
                                             channel_ ? channel_->path() : std::string()},
                   *pump_);
    return true;
  }

  // Workers can do without: where there is no directory, or its path is too long for a socket.
  void open_channel() {
    if (run_dir_.path().empty()) return;
    auto channel = WorkerChannel::open(io_, run_dir_.path() + "/channel", options_.local_world_size,
                                       {[this](LocalRank rank) { hangs_.progressed(rank); },
                                        [this](LocalRank rank) { signal_one(rank); }});
    if (channel)
      channel_ = std::move(*channel);
    else
      spdlog::debug("worker_channel_unavailable reason=\"{}\"", channel.error().message());
  }

  bool give_up(const std::string& reason) {
    spdlog::error("{}", reason);
    end(1);
    return false;
  }

  // --- events --------------------------------------------------------------------------------

  /// Actions may lead to events at once: those wait for their turn.
  void feed(SupervisorEvent event) {
    events_.push_back(std::move(event));
    if (std::exchange(feeding_, true)) return;
    for (; !events_.empty(); events_.pop_front())
      for (const SupervisorAction& action : supervisor_.step(events_.front(), now()))
        std::visit([this](const auto& a) { carry_out(a); }, action);
    feeding_ = false;
    arm_timer();
  }

  void arm_timer() {
    const auto deadline = supervisor_.next_deadline();
    if (deadline == armed_) return;
    armed_ = deadline;
    timer_.cancel();
    if (!deadline) return;
    timer_.expires_at(std::chrono::steady_clock::time_point(deadline->time_since_epoch()));
    timer_.async_wait([this](boost::system::error_code ec) {
      if (ec) return;
      armed_.reset();
      feed(TimePassed{});
    });
  }

  void on_report(const ShimReport& report) {
    switch (report.kind) {
      case ShimReport::Kind::Started:
        group_->started(report);
        sessions_.insert(report.pid);
        alive_[LocalRank{report.worker}] = report.pid;
        hangs_.worker_started(LocalRank{report.worker}, report.pid);
        watchdogs_.worker_started(LocalRank{report.worker}, report.pid);
        event_log_.worker_started(LocalRank{report.worker}, report.pid);
        return feed(WorkerStarted{LocalRank{report.worker}});
      case ShimReport::Kind::StartFailed:
        return feed(WorkerStartFailed{LocalRank{report.worker}, start_failure(report)});
      case ShimReport::Kind::Exited:
        group_->ended(report);
        alive_.erase(LocalRank{report.worker});
        hangs_.worker_ended(LocalRank{report.worker});
        watchdogs_.worker_ended(LocalRank{report.worker});
        return feed(WorkerEnded{LocalRank{report.worker},
                                {.killed = report.code != CLD_EXITED,
                                 .status = report.status,
                                 .core_dumped = report.code == CLD_DUMPED}});
      case ShimReport::Kind::AllGone:
        if (report.pid != 0)
          spdlog::error("process {} could not be killed (uninterruptible I/O?): it is left behind",
                        report.pid);
        return feed(EverythingGone{.complete = report.pid == 0});
      case ShimReport::Kind::Signalled:
        for (int i = 0; i < report.count; ++i)
          on_signal(report.status);
        return;
    }
  }

  void on_signal(int number) {
    const auto& handled = options_.signals_to_handle;
    if (std::find(handled.begin(), handled.end(), number) == handled.end())
      return hangs_.asked(number);  // Only one comes that does not end the job: request_signal.
    using std::chrono::duration_cast;
    using State = Supervisor::State;
    const State before = supervisor_.state();
    const bool stopping =
        before == State::Starting || before == State::Running || before == State::Stopping;
    // A tenth of the time is left between the end of what workers have and SIGKILL.
    if (stopping && signals_ == 0 && channel_)
      channel_->preempt(now() + options_.shutdown_timeout - options_.shutdown_timeout / 10);
    if (stopping && signals_++ == 0)
      spdlog::warn(
          "received {}: stopping the workers, SIGKILL after {} s; a second signal kills "
          "them at once",
          signal_name(number),
          duration_cast<std::chrono::seconds>(options_.shutdown_timeout).count());
    else if (stopping)
      spdlog::warn("received {} again: killing the workers", signal_name(number));
    feed(SignalArrived{number});
  }

  // --log-on-full=fail: the workers are stopped as by a signal, and the job has failed.
  void on_logs_full(const std::string& reason) {
    if (std::exchange(logs_are_full_, true) || supervisor_.finished()) return;
    spdlog::error("{}: stopping the workers (--log-on-full=drop goes on without some logs)",
                  reason);
    feed(SignalArrived{SIGTERM});
  }

  std::vector<StackCollector::Target> stack_targets() const {
    std::vector<StackCollector::Target> targets;
    for (const auto& [rank, pid] : alive_)
      targets.push_back({rank, pid, group_->log_dir(rank)});
    return targets;
  }

  std::string start_failure(const ShimReport& report) const {
    const std::string text =
        boost::system::error_code(report.error, boost::system::system_category()).message();
    std::string reason = "cannot start '" + group_->program() + "': " + text;
    if (static_cast<SpawnStep>(report.step) != SpawnStep::Exec)
      return reason + " (" + to_string(static_cast<SpawnStep>(report.step)) + ")";
    if (report.error == ENOENT) reason += " (its interpreter, in the first line, is not there)";
    return reason;
  }

  // The shim is gone, so nobody owns the workers: those that it started itself have died with it.
  void on_shim_lost() {
    hangs_.cancel();
    if (ended_) return io_.stop();
    if (fifo_ != nullptr) fifo_->remove();
    kill_job(sessions_, [this](std::string_view variable) { return marks_job(variable, job_); });
    run_dir_.tidy(false);
    ::_exit(1);
  }

  // --- actions -------------------------------------------------------------------------------

  void carry_out(const JoinRendezvous&) {
    event_log_.rendezvous_begun(supervisor_.restart_count());
    session_->join();
  }

  RendezvousSession::Handlers session_handlers() {
    return {
        .on_round = [this](const SessionRound& round) { on_round(round); },
        .on_restart =
            [this](const std::string& why) {
              spdlog::warn("stopping the workers to meet the other nodes again: {}", why);
              feed(RestartOrdered{});
            },
        .on_end =
            [this](const SessionEnd& end) {
              feed(JobEnded{end.succeeded, end.who.empty() ? end.why : end.who + ": " + end.why});
            },
        .on_failed = [this](const std::string& why) { feed(RendezvousFailed{why}); },
        .host_store =
            [this](const std::function<void(const HostedStoreResult&)>& done) {
              workers_store_.prepare(done);
            }};
  }

  void on_round(const SessionRound& round) {
    round_ = round.facts;
    feed(RendezvousCompleted{round.job_decides ? std::optional(round.facts.restart_count)
                                               : std::nullopt});
  }

  void carry_out(const StartWorkers& action) {
    event_log_.rendezvous_completed();
    round_.restart_count = action.restart_count;
    event_log_.ranks_assigned(round_);
    watchdogs_.attempt_begins();
    if (channel_) channel_->reset();
    auto starts = group_->prepare(round_, run_dir_);
    if (!starts) {
      for (int rank = 0; rank < options_.local_world_size; ++rank)
        feed(WorkerStartFailed{LocalRank{rank}, starts.error().reason});
      return;
    }
    for (WorkerGroup::Start& start : *starts)
      link_.send(start.request, std::move(start.fds));
  }

  void carry_out(const EndWorker& action) {
    signal_worker(alive_[action.rank], ::getppid(), action.number);
  }

  void carry_out(const SignalWorkers& action) {
    hangs_.attempt_ended();
    watchdogs_.attempt_ends();
    group_->signalled();
    stop_signal_ = action.number;
    for (int rank = 0; rank < options_.local_world_size; ++rank)
      if (!channel_ || !channel_->ends_itself(LocalRank{rank})) signal_one(LocalRank{rank});
  }

  // Also for one that had the notice, wanted to end by itself, and is still there.
  void signal_one(LocalRank rank) {
    link_.send({.kind = ShimRequest::Kind::Signal, .worker = rank.value, .number = stop_signal_});
  }

  void carry_out(const KillEverything&) {
    hangs_.attempt_ended();
    watchdogs_.attempt_ends();
    group_->signalled();
    link_.send({.kind = ShimRequest::Kind::KillAll});
  }

  void carry_out(const AnnounceFailure& action) {
    const int code = action.exit.killed ? -action.exit.status : action.exit.status;
    spdlog::error("failed (exitcode: {}) local_rank: {} (pid: {}) {}", code, action.rank.value,
                  group_->pid(action.rank), failed_program_text(options_, group_->program()));
    if (action.restarts_left > 0)
      spdlog::warn("restarting all workers of {}: {} of {} restarts left after this one",
                   options_.max_nodes > 1 ? "the job" : "this node", action.restarts_left - 1,
                   options_.max_restarts);
    session_->workers_failed("rank " + std::to_string(round_.ranks.global_rank(action.rank).value) +
                             (action.exit.killed
                                  ? " was killed by " + signal_name(action.exit.status)
                                  : " exited with " + std::to_string(action.exit.status)));
  }

  void carry_out(const ReportEnd& action) { session_->finished(action.succeeded, action.what); }

  void carry_out(const LeaveRendezvous&) { session_->leave(); }

  void carry_out(const Finish& action) {
    pump_->finish(kDrainLimit, [this, action](const FinishReport& report) {
      asio::post(io_, [this, action, report] { finish(action, report); });
    });
  }

  void finish(const Finish& action, const FinishReport& logs) {
    channel_.reset();  // It has a name in the directory that is tidied now.
    if (options_.events_on_console) {
      std::int64_t started_ms = 0;
      event_log_.finished(action, group_->ends(&started_ms));
    }
    switch (action.why) {
      case Finish::Why::Succeeded:
        if (!action.reason.empty())
          spdlog::warn("the workers of this node have succeeded, but the job has not: {}",
                       action.reason);
        run_dir_.tidy(!hangs_.has_written());  // Whoever asked for them wants to read them.
        return end(0);
      case Finish::Why::JobFailed:
        spdlog::error("the job has failed: {}", action.reason);
        run_dir_.tidy(false);
        return end(1);
      case Finish::Why::StartFailed:
      case Finish::Why::RendezvousFailed:
        spdlog::error("{}", action.reason);
        run_dir_.tidy(false);
        return end(1);
      case Finish::Why::Signalled:
        run_dir_.tidy(false);
        if (logs_are_full_) return end(1);
        if (!action.started) return end(1, action.signal);
        return end(options_.propagate_exit_code ? 128 + action.signal : 1);
      case Finish::Why::WorkerFailed:
        break;
    }
    if (!action.reason.empty()) spdlog::error("{}", action.reason);
    const int code = report_failure(options_, *group_, host_name(), logs, environment_);
    run_dir_.tidy(false);
    end(code);
  }

  /// Tells the shim, which ends the whole; its end ends us.
  void end(int exit_code, int signal = 0) {
    ended_ = true;
    hangs_.cancel();
    session_->close();
    session_->drain([this, exit_code, signal] {
      link_.send({.kind = ShimRequest::Kind::End, .number = signal, .exit_code = exit_code});
      end_when_sent();
    });
  }

  void end_when_sent() {
    if (!link_.idle()) return asio::post(io_, [this] { end_when_sent(); });
    if (pump_) pump_->stop(kDrainLimit);
    io_.stop();
  }

  const AgentOptions& options_;
  const std::string job_;
  const std::vector<std::string> environment_;
  asio::io_context io_{1};
  asio::steady_timer timer_;
  std::optional<Instant> armed_;
  ShimLink link_;
  EventLog event_log_;
  Supervisor supervisor_;
  std::deque<SupervisorEvent> events_;
  bool feeding_ = false;
  std::unique_ptr<LogPump> pump_;
  RunDir run_dir_;
  std::optional<WorkerGroup> group_;
  HangResponse hangs_;
  const TimerFifo* fifo_;
  Watchdogs watchdogs_;
  std::unique_ptr<WorkerChannel> channel_;
  WorkersStore workers_store_;
  std::unique_ptr<RendezvousSession> session_;
  RoundFacts round_;
  std::map<LocalRank, pid_t> alive_;
  std::set<pid_t> sessions_;  // Of the workers so far: for the case that the shim dies.
  int signals_ = 0;
  int stop_signal_ = SIGTERM;
  bool logs_are_full_ = false;
  bool ended_ = false;
};

// What options say about workers' variables goes before what the environment says.
std::vector<std::string> with_overrides(std::vector<std::string> environment,
                                        const std::map<std::string, std::string>& overrides) {
  std::erase_if(environment, [&overrides](const std::string& variable) {
    return overrides.contains(variable.substr(0, variable.find('=')));
  });
  for (const auto& [name, value] : overrides)
    environment.push_back(name + "=" + value);
  return environment;
}

// The store holds a descriptor for every worker; workers get the shim's limit, which stays.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int run_job(const AgentOptions& options, const std::vector<std::string>& environment) {
  // Before the split: should the agent be killed, the shim knows what to tidy.
  std::string where;
  const Result<RunDir> run_dir = RunDir::make(options, where);
  if (!run_dir) {
    spdlog::error(
        "cannot make a directory for logs and error files in {}: {} (--log-dir chooses "
        "another place)",
        where, run_dir.error().message());
    return 1;
  }
  std::vector<std::string> inherited = with_overrides(environment, options.worker_environment);
  const Result<std::optional<TimerFifo>> fifo = TimerFifo::make(inherited, where);
  if (!fifo) {
    spdlog::error("cannot make the timers' pipe {}: {} (TORCHELASTIC_TIMER_FILE names its place)",
                  where, fifo.error().message());
    run_dir->tidy(false);
    return 1;
  }
  // SIGUSR2 asks for stacks, unless the user means something else by it.
  const auto& handled = options.signals_to_handle;
  const bool is_free = std::find(handled.begin(), handled.end(), SIGUSR2) == handled.end();
  const int exit_code = split_into_shim_and_agent(
      {.signals = handled, .request_signal = is_free ? SIGUSR2 : 0}, [&](int socket) {
        raise_descriptor_limit();
        return Agent(options, inherited, *run_dir, *fifo ? &**fifo : nullptr, socket).run();
      });
  if (*fifo) (*fifo)->remove();
  run_dir->tidy(false);
  return exit_code;
}

}  // namespace muster

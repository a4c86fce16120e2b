#include "agent/io/agent.h"

#include <signal.h>
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

#include "agent/core/end_cause.h"
#include "agent/core/job_outcome.h"
#include "agent/core/progress_text.h"
#include "agent/core/signal_name.h"
#include "agent/core/stop_lines.h"
#include "agent/core/supervisor.h"
#include "agent/io/event_log.h"
#include "agent/io/failure_output.h"
#include "agent/io/hang_response.h"
#include "agent/io/logs_specs_program.h"
#include "agent/io/own_lines.h"
#include "agent/io/owned_name.h"
#include "agent/io/shim_link.h"
#include "agent/io/watchdogs.h"
#include "agent/io/worker_channel.h"
#include "agent/io/worker_group.h"
#include "agent/logs/log_pump.h"
#include "agent/posix/helper_process.h"
#include "agent/posix/job_cleanup.h"
#include "agent/sessions/session_choice.h"
#include "agent/sessions/workers_store.h"
#include "rendezvous/core/limit_advice.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

// For what dead workers left in pipes that a grandchild may still hold.
constexpr Duration kDrainLimit = 2s;

/// The loop: feeds the supervisor with what happens, and carries out what it decides.
class Agent {
 public:
  Agent(const AgentOptions& options, AgentSurroundings surroundings)
      : options_(options),
        job_(random_name(12)),
        environment_(std::move(surroundings.environment)),
        timer_(io_),
        link_(io_, surroundings.socket,
              {.on_report = [this](const ShimReport& report) { on_report(report); },
               .on_lost = [this] { on_shim_lost(); }}),
        event_log_(options, host_name()),
        supervisor_({.local_world_size = options.local_world_size,
                     .max_restarts = options.max_restarts,
                     .stop_timeout = options.shutdown_timeout}),
        places_(surroundings.places),
        hangs_(io_, environment_, options.hang_timeout,
               {.workers = [this] { return stack_targets(); },
                .program = [this] { return group_->program(); },
                .on_hung =
                    [this](LocalRank rank, const std::string& why) {
                      group_->explain(rank, why);
                      feed(WorkerHung{rank});
                    }}),
        launcher_pid_(surroundings.launcher_pid),
        workers_store_(io_, workers_store_options(options), options.rendezvous.shares_store),
        session_(make_session(io_, options, session_handlers())) {
    if (const auto& specs = options.log.specs)
      logs_specs_ = std::make_unique<LogsSpecsProgram>(io_, *specs, options, environment_);
  }

  int run() {
    if (!prepare()) return 1;
    feed(Begun{});
    io_.run();
    return 0;  // Nobody reads it: the shim knows the outcome already.
  }

 private:
  bool prepare() {
    // Only now that there are three of us, of whom each tidies up after the others.
    if (const std::string problem = places_.make(); !problem.empty()) return give_up(problem);
    watchdogs_ = std::make_unique<Watchdogs>(
        io_, environment_, places_.fifo(),
        Watchdogs::Handlers{
            .on_reason = [this](LocalRank rank,
                                const std::string& why) { group_->explain(rank, why); },
            .on_stuck = [this](LocalRank rank) { feed(WorkerHung{rank}); }});
    auto pump =
        LogPump::start({.space = {.max_bytes = options_.log.max_bytes,
                                  .drop_when_full = options_.log.on_full != LogOnFull::Fail,
                                  .on_full = [this](const std::string& reason) {
                                    asio::post(io_, [this, reason] { on_logs_full(reason); });
                                  }}});
    if (!pump)
      return give_up("cannot start the log thread: " + pump.error().message() +
                     start_limit_advice(pump.error().value()));
    pump_ = std::move(*pump);
    lines_.start(*pump_);
    open_channel();
    group_ = std::make_unique<WorkerGroup>(
        options_,
        WorkerGroup::Surroundings{environment_, job_, host_name(),
                                  channel_ ? channel_->path() : std::string()},
        *pump_);
    return true;
  }

  // Workers can do without: where there is no directory, or its path is too long for a socket.
  void open_channel() {
    const std::string& dir = places_.run_dir().path();
    if (dir.empty()) return;
    auto channel = WorkerChannel::open(io_, dir + "/channel", options_.local_world_size,
                                       {[this](LocalRank rank) { hangs_.progressed(rank); },
                                        [this](LocalRank rank) { signal_one(rank); }});
    if (channel)
      channel_ = std::move(*channel);
    else
      spdlog::debug("worker_channel_unavailable reason=\"{}\"", channel.error().message());
  }

  bool give_up(const std::string& reason) {
    spdlog::error("{}", reason);
    report_early_end(options_, lack(reason));
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
        watchdogs_->worker_started(LocalRank{report.worker}, report.pid);
        event_log_.worker_started(LocalRank{report.worker}, report.pid);
        return feed(WorkerStarted{LocalRank{report.worker}});
      case ShimReport::Kind::StartFailed:
        return feed(WorkerStartFailed{LocalRank{report.worker}, group_->start_failure(report)});
      case ShimReport::Kind::Exited:
        group_->ended(report);
        alive_.erase(LocalRank{report.worker});
        hangs_.worker_ended(LocalRank{report.worker});
        watchdogs_->worker_ended(LocalRank{report.worker});
        return feed(WorkerEnded{LocalRank{report.worker},
                                {.killed = report.code != CLD_EXITED,
                                 .status = report.status,
                                 .core_dumped = report.code == CLD_DUMPED}});
      case ShimReport::Kind::Told:
        group_->told(report);
        if (auto line = stop_lines_.told(report.pid, report.status, stopping_))
          lines_.say(spdlog::level::warn, std::move(*line));
        return;
      case ShimReport::Kind::AllGone:
        if (report.pid != 0)
          lines_.say(spdlog::level::err,
                     "Process " + std::to_string(report.pid) +
                         " did not exit after SIGKILL within 30s: it is left behind (it waits in "
                         "the kernel: uninterruptible I/O?)");
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
    using State = Supervisor::State;
    const State before = supervisor_.state();
    const bool stopping =
        before == State::Starting || before == State::Running || before == State::Stopping;
    // A tenth of the time is left between the end of what workers have and SIGKILL.
    if (stopping && signals_ == 0 && channel_)
      channel_->preempt(now() + options_.shutdown_timeout - options_.shutdown_timeout / 10);
    if (before != State::Idle && before != State::Joining)
      lines_.say(spdlog::level::warn, "Received " + std::to_string(number) + " death signal");
    if (stopping && signals_++ == 0)
      lines_.say(spdlog::level::warn, stopping_text(number, options_.shutdown_timeout));
    else if (stopping)
      lines_.say(spdlog::level::warn,
                 "received " + signal_name(number) + " again: killing the workers");
    else if (before == State::Leaving)
      lines_.say(spdlog::level::warn, "Got termination signal: " + std::to_string(number) +
                                          ": the other nodes are not waited for");
    feed(SignalArrived{number});
  }

  // --log-on-full=fail: the workers are stopped as by a signal, and the job has failed.
  void on_logs_full(const std::string& reason) {
    if (logs_full_ || supervisor_.finished()) return;
    logs_full_ = reason;
    spdlog::error("{}: stopping the workers (--log-on-full=drop goes on without some logs)",
                  reason);
    feed(SignalArrived{SIGTERM});
  }

  std::vector<StackCollector::Target> stack_targets() const {
    std::vector<StackCollector::Target> targets;
    targets.reserve(alive_.size());
    for (const auto& [rank, pid] : alive_)
      targets.push_back({rank, pid, group_->log_dir(rank)});
    return targets;
  }

  // The shim is gone, so nobody owns the workers: those that it started itself have died with it.
  void on_shim_lost() {
    hangs_.cancel();
    if (ended_) return io_.stop();
    kill_job(sessions_, [this](std::string_view variable) { return marks_job(variable, job_); });
    places_.tidy(false);
    ::_exit(1);
  }

  // --- actions -------------------------------------------------------------------------------

  void carry_out(const JoinRendezvous&) {
    info("Rendezvous'ing worker group");
    event_log_.rendezvous_begun(supervisor_.restart_count());
    if (!logs_specs_) return session_->join();
    logs_specs_->load([this](const std::string& problem) {
      if (supervisor_.finished()) return;
      if (!problem.empty()) return feed(RendezvousFailed{problem});
      session_->join();
    });
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
    round_.use_agent_store = options_.rendezvous.shares_store;
    feed(RendezvousCompleted{round.job_decides ? std::optional(round.facts.restart_count)
                                               : std::nullopt});
  }

  void carry_out(const StartWorkers& action) {
    event_log_.rendezvous_completed();
    round_.restart_count = action.restart_count;
    event_log_.ranks_assigned(round_);
    for (std::string& line : rendezvous_text(options_, round_))
      lines_.say(spdlog::level::info, std::move(line));
    info("Starting worker group");
    stop_lines_.begin_attempt();
    watchdogs_->attempt_begins();
    if (channel_) channel_->reset();
    if (!logs_specs_) return start_workers(nullptr);
    const auto environments = group_->announce(round_);
    if (!environments) return no_worker_starts(environments.error().reason);
    asks_for_logs_ = true;
    logs_specs_->place(*environments, [this](const LogsSpecsProgram::Placed& placed) {
      if (!std::exchange(asks_for_logs_, false)) return;  // Nobody waits for it any more.
      if (!placed) return no_worker_starts(placed.error().text);
      start_workers(&*placed);
    });
  }

  // Each is on its way before the next is prepared: the shim starts it meanwhile.
  void start_workers(const LogsDest* dest) {
    if (const auto problem = group_->prepare(round_, places_.run_dir(), dest))
      return no_worker_starts(problem->reason);
    for (int rank = 0; rank < options_.local_world_size; ++rank) {
      auto start = group_->make_start(LocalRank{rank});
      if (!start) return no_worker_starts(start.error().reason, rank);
      link_.send(start->request, std::move(start->fds));
    }
    group_->starts_made();
    if (round_.restart_count == 0) asio::post(io_, [this] { places_.tidy_after_dead_owners(); });
  }

  void no_worker_starts(const std::string& reason, int from = 0) {
    for (int rank = from; rank < options_.local_world_size; ++rank)
      feed(WorkerStartFailed{LocalRank{rank}, reason});
  }

  // The attempt is over before it is known where its logs would go.
  void give_up_start() {
    if (std::exchange(asks_for_logs_, false)) no_worker_starts("stopped before the start");
  }

  void carry_out(const EndWorker& action) {
    signal_worker(alive_[action.rank], ::getppid(), action.number);
  }

  void carry_out(const SignalWorkers& action) {
    hangs_.attempt_ended();
    watchdogs_->attempt_ends();
    info("Stopping worker group");
    stop_lines_.begin_stop();
    stopping_ = static_cast<int>(alive_.size());
    stop_signal_ = action.number;
    for (int rank = 0; rank < options_.local_world_size; ++rank)
      if (!channel_ || !channel_->ends_itself(LocalRank{rank})) signal_one(LocalRank{rank});
    give_up_start();
  }

  // Also for one that had the notice, wanted to end by itself, and is still there.
  void signal_one(LocalRank rank) {
    link_.send({.kind = ShimRequest::Kind::Signal, .worker = rank.value, .number = stop_signal_});
  }

  void carry_out(const KillEverything&) {
    hangs_.attempt_ended();
    watchdogs_->attempt_ends();
    stopping_ = static_cast<int>(alive_.size());
    link_.send({.kind = ShimRequest::Kind::KillAll});
    give_up_start();
  }

  void carry_out(const AnnounceFailure& action) {
    lines_.below_output();
    lines_.say(spdlog::level::err, failure_text(options_, action, group_->pid(action.rank)));
    if (action.restarts_left > 0) {
      lines_.say(spdlog::level::info, restart_text(options_, action.restarts_left));
      lines_.say(spdlog::level::warn, restarting_text(options_, action.restarts_left));
    }
    session_->workers_failed("rank " + std::to_string(round_.ranks.global_rank(action.rank).value) +
                             (action.exit.killed
                                  ? " was killed by " + signal_name(action.exit.status)
                                  : " exited with " + std::to_string(action.exit.status)));
  }

  void carry_out(const ReportEnd& action) {
    if (action.succeeded)
      info("worker group successfully finished. Waiting for other agents to finish.");
    reported_ = now();
    session_->finished(action.succeeded, action.what);
  }

  void carry_out(const LeaveRendezvous&) { session_->leave(); }

  void carry_out(const Finish& action) {
    pump_->finish(kDrainLimit, [this, action](const FinishReport& report) {
      asio::post(io_, [this, action, report] { finish(action, report); });
    });
  }

  void finish(const Finish& action, const FinishReport& logs) {
    lines_.flush();
    if (reported_ && action.why == Finish::Why::Succeeded)
      info("Done waiting for other agents. Elapsed: " +
           std::to_string(std::chrono::duration<double>(now() - *reported_).count()) + " seconds");
    channel_.reset();  // It has a name in the directory that is tidied now.
    if (options_.events_on_console) {
      std::int64_t started_ms = 0;
      event_log_.finished(action, group_->ends(&started_ms), logs_full_);
    }
    const JobOutcome outcome =
        job_outcome(action, {.launcher_pid = launcher_pid_,
                             .propagate_exit_code = options_.propagate_exit_code,
                             .logs_full = logs_full_});
    const int exit_code = report_outcome(options_, outcome, *group_, logs);
    // Whoever asked for stacks wants to read them.
    places_.tidy(outcome.succeeded && !hangs_.has_written());
    end(exit_code, outcome.signal);
  }

  /// As torchrun says it at LOGLEVEL=INFO.
  void info(const std::string& text) {
    lines_.say(spdlog::level::info, "[" + options_.role + "] " + text);
  }

  /// Tells the shim, which ends the whole; its end ends us.
  void end(int exit_code, int signal = 0) {
    ended_ = true;
    hangs_.cancel();
    session_->close();
    session_->drain([this, exit_code, signal] {
      const auto then = [this, exit_code, signal] {
        link_.send({.kind = ShimRequest::Kind::End, .number = signal, .exit_code = exit_code});
        end_when_sent();
      };
      if (!logs_specs_) return then();
      logs_specs_->close(then);
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
  OwnLines lines_{io_};
  StopLines stop_lines_;
  int stopping_ = 0;  // How many lived when the stop began.
  std::unique_ptr<LogPump> pump_;
  JobPlaces& places_;
  std::unique_ptr<WorkerGroup> group_;
  std::unique_ptr<LogsSpecsProgram> logs_specs_;  // Null: the logs go where we put them.
  HangResponse hangs_;
  const int launcher_pid_;
  std::unique_ptr<Watchdogs> watchdogs_;
  std::unique_ptr<WorkerChannel> channel_;
  WorkersStore workers_store_;
  std::unique_ptr<RendezvousSession> session_;
  RoundFacts round_;
  std::map<LocalRank, pid_t> alive_;
  std::set<pid_t> sessions_;         // Of the workers so far: for the case that the shim dies.
  std::optional<Instant> reported_;  // When the others were told that this part is over.
  int signals_ = 0;
  int stop_signal_ = SIGTERM;
  bool asks_for_logs_ = false;            // Of logs_specs_, for workers that are to start.
  std::optional<std::string> logs_full_;  // And on what: --log-on-full=fail.
  bool ended_ = false;
};

}  // namespace

int run_agent(const AgentOptions& options, AgentSurroundings surroundings) {
  return Agent(options, std::move(surroundings)).run();
}

}  // namespace muster

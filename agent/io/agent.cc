#include "agent/io/agent.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/end_cause.h"
#include "agent/core/job_outcome.h"
#include "agent/core/progress_text.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_table.h"
#include "agent/io/event_log.h"
#include "agent/io/failure_output.h"
#include "agent/io/hang_response.h"
#include "agent/io/job_end.h"
#include "agent/io/log_work.h"
#include "agent/io/logs_specs_program.h"
#include "agent/io/node_answers.h"
#include "agent/io/node_reporter.h"
#include "agent/io/notice_response.h"
#include "agent/io/owned_folder.h"
#include "agent/io/progress_watch.h"
#include "agent/io/shim_link.h"
#include "agent/io/watchdogs.h"
#include "agent/io/worker_channel.h"
#include "agent/io/worker_group.h"
#include "agent/io/worker_stop.h"
#include "agent/posix/job_cleanup.h"
#include "agent/posix/shim_reports.h"
#include "agent/sessions/call_within.h"
#include "agent/sessions/session_choice.h"
#include "agent/sessions/workers_store.h"
#include "base/limit_advice.h"
#include "base/system/clock.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

// The line about a worker's end waits at most so long until the worker's last output is shown.
constexpr Duration kCatchUpLimit = 250ms;
// The session has limits of its own, of up to 5 s. This one holds if the store's thread hangs.
constexpr Duration kDrainLimit = 8s;

/// The control loop: feeds events to the supervisor (agent/core/supervisor.h) and applies its
/// actions. The sections below follow the life of a job.
class Agent {
 public:
  Agent(const AgentOptions& options, AgentContext context)
      : options_(options),
        job_(random_name(12)),
        environment_(std::move(context.environment)),
        timer_(io_),
        link_(io_, context.socket,
              {.on_report = [this](const ShimReport& report) { on_report(report); },
               .on_lost = [this] { on_shim_lost(); }}),
        stop_(options, link_, workers_),
        work_(io_, options.log.dir, options.shutdown_timeout),
        job_end_(options, work_),
        event_log_(options, host_name(),
                   [this](std::string line) { work_.print(std::move(line)); }),
        supervisor_(supervisor_settings(options)),
        run_files_(context.run_files),
        group_(options, {environment_, job_, host_name(), std::string()},
               [this](const auto& why) { asio::post(io_, [this, why] { on_logs_full(why); }); }),
        hangs_(io_, workers_, environment_, options.hang_timeout,
               {.workers = [this] { return group_.living(); },
                .program = [this] { return group_.program(); },
                .console_is_full = [this] { return group_.console_is_full(); },
                .on_hung =
                    [this](LocalRank rank, const auto& why) {
                      group_.explain(rank, why);
                      feed(WorkerHung{rank});
                    }}),
        answers_(io_, work_, hangs_),
        reporter_(io_, options.local_world_size, [this](const auto& is) { session_->report(is); }),
        progress_(io_, options.progress_file, work_,
                  [this](const Progressed& made) { on_progressed(made); }),
        notices_(io_, options, workers_,
                 {.tell_host = [this](const auto& notice) { session_->notify(notice); },
                  .tell_saved =
                      [this] {
                        feed(NoticeAnswered{});
                        session_->saved();
                      },
                  .on_told = [this](Instant deadline) { feed(JobNoticed{deadline}); }}),
        launcher_pid_(context.launcher_pid),
        cgroup_(std::move(context.cgroup)),
        workers_store_(io_, workers_store_options(options), options.rendezvous.shares_store),
        session_(make_session(io_, options, session_handlers())) {
    workers_store_.on_reach([this](const NativeReach& asked) {
      session_->peer_reached(asked.generation, asked.group_rank);
    });
    workers_.observe(event_log_);
    workers_.observe(reporter_);
    if (const auto& specs = options.log.specs)
      logs_specs_ = std::make_shared<LogsSpecsProgram>(io_, *specs, options, environment_);
  }

  int run() {
    if (const auto error = work_.start()) {
      const EndCause cause = missing_resource("cannot start the log thread: " + error.message() +
                                              start_limit_advice(error.value()));
      spdlog::error("{}", cause.text);
      report_early_end(options_, cause);
      send_end(1, 0);
    } else {
      create_run_files();
    }
    io_.run();
    return 0;  // The shim ignores it: send_end() has sent the outcome.
  }

 private:
  // --- startup ----------------------------------------------------------------------------------
  // Runs after the front and the shim exist: each of the three removes the files if the others die.
  void create_run_files() {
    job_end_.on_ends([this](const auto& ends) { reporter_.ended(ends); });
    auto problem = std::make_shared<std::string>();
    const auto create = [this, problem] { *problem = run_files_.create(); };
    work_.run(create, [this, problem](bool) { begin(*problem); });
  }

  void begin(const std::string& problem) {
    if (supervisor_.finished()) return;  // A signal has ended the job before it began.
    if (!problem.empty()) return end_early(problem);
    watchdogs_ = std::make_unique<Watchdogs>(
        io_, workers_, environment_, run_files_.fifo(),
        Watchdogs::Handlers{
            .on_reason = [this](LocalRank rank, const auto& why) { group_.explain(rank, why); },
            .on_stuck = [this](LocalRank rank) { feed(WorkerHung{rank}); }});
    adopt_run_files();
    notices_.begin(environment_);
    apply(JoinRendezvous{});
  }

  void adopt_run_files() {
    link_.send({.kind = ShimRequest::Kind::Keep}, run_files_.copies_of_locks());
    watchdogs_->read_timers(run_files_.fifo());
    group_.adopt(run_files_);
    OwnedFd listener = run_files_.take_channel();
    if (!listener.is_open()) return;
    channel_ = std::make_unique<WorkerChannel>(
        io_, std::move(listener), run_files_.channel_path(), options_.local_world_size,
        WorkerChannel::Handlers{
            .on_progress = [this](const WorkerProgress& progress) { on_progress(progress); },
            .on_overdue = [this](LocalRank rank) { stop_.signal_overdue(rank); },
            .on_saved =
                [this](const WorkerSaved& saved) {
                  notices_.on_saved(saved);
                  if (notices_.has_answered(saved.rank)) hangs_.saved(saved.rank);
                }});
    stop_.set_channel(channel_.get());
    notices_.set_channel(channel_.get());
  }

  void end_early(const std::string& reason) {
    ends_early_ = true;
    work_.job_ends();
    finish({.why = Finish::Why::StartFailed, .reason = reason}, {});
  }

  void on_progress(const WorkerProgress& progress) {
    if (progress.ends) return hangs_.ended_progress(progress.rank);
    if (progress.step) reporter_.progressed(progress.rank, *progress.step);
    if (progress.step) progress_.note_step(*progress.step);
    hangs_.progressed(progress.rank);
  }

  /// What the failure costs depends on the last progress of the attempt.
  void before_worker_fails() {
    if (progress_.has_failed()) return;
    if (channel_) channel_->read_waiting();
    progress_.worker_failed();
  }

  void on_progressed(const Progressed& made) {
    session_->progressed(made.step);
    feed(ProgressMade{made.step});
  }

  // --- events -----------------------------------------------------------------------------------
  /// An action can cause another event immediately. Such events are queued and handled in order.
  void feed(SupervisorEvent event) {
    events_.push_back(std::move(event));
    if (std::exchange(feeding_, true)) return;
    for (; !events_.empty(); events_.pop_front())
      for (const SupervisorAction& action : supervisor_.step(events_.front(), now()))
        std::visit([this](const auto& a) { apply(a); }, action);
    feeding_ = false;
    arm_timer();
  }

  void arm_timer() {
    const auto deadline = supervisor_.next_deadline();
    if (deadline == armed_) return;
    armed_ = deadline;
    timer_.cancel();
    if (!deadline) return;
    timer_.expires_at(to_steady(*deadline));
    timer_.async_wait([this](boost::system::error_code ec) {
      if (ec) return;
      armed_.reset();
      feed(TimePassed{});
    });
  }

  void on_report(const ShimReport& report) {
    switch (report.kind) {
      case ShimReport::Kind::Started:
        group_.started(report);
        sessions_[report.pid] = {.start = ticks_since_boot(), .end = std::nullopt};
        workers_.started(LocalRank{report.worker}, report.pid);
        // Once, after the first starts: the removal must not delay a worker.
        if (++starts_ == options_.local_world_size)
          work_.pump().run([this] { run_files_.remove_orphans(); });
        return feed(WorkerStarted{LocalRank{report.worker}});
      case ShimReport::Kind::StartFailed:
        return feed(WorkerStartFailed{LocalRank{report.worker}, group_.start_failure(report)});
      case ShimReport::Kind::Exited: {
        group_.ended(report);
        sessions_[report.pid].end = ticks_since_boot();
        const WorkerExit exit = exit_of(report);
        const LocalRank rank{report.worker};
        notices_.before_worker_ends();
        if (!exit.ok()) before_worker_fails();
        const bool ahead = notices_.has_answered_ahead(rank);
        workers_.ended(rank, exit);
        return feed(WorkerEnded{.rank = rank,
                                .exit = exit,
                                .had_answered = !ahead && notices_.has_answered(rank),
                                .had_answered_ahead = ahead,
                                .timed_out = !group_.ended_because(rank).empty()});
      }
      case ShimReport::Kind::WorkerSignalled:
        group_.record_signal(report);
        return stop_.on_signalled(report);
      case ShimReport::Kind::Leftovers:
        return stop_.on_leftovers(report);
      case ShimReport::Kind::Forwarded:
        return stop_.on_forwarded(report);
      case ShimReport::Kind::StartedCold:
        return spdlog::warn("--warm: {}: {}",
                            report.count == 0 ? "the workers start cold"
                                              : "the workers of restart " +
                                                    std::to_string(report.count) + " start cold",
                            report.text.data());
      case ShimReport::Kind::ZygoteReady:
        return spdlog::info("zygote_ready pid={}", report.pid);
      case ShimReport::Kind::ZygoteMemory:
        return reporter_.zygote_measured(report.bytes == 0 ? std::nullopt
                                                           : std::optional(report.bytes));
      case ShimReport::Kind::ZygoteLost:
        return spdlog::warn("--warm: {}: {}", report.text.data(),
                            report.code != 0 ? "a new one does its imports beside the workers"
                                             : "the workers of later restarts start cold");
      case ShimReport::Kind::AllGone:
        if (report.pid == 0)
          sessions_.clear();
        else
          spdlog::error("{}", left_behind_text(report.pid));
        return feed(EverythingGone{.complete = report.pid == 0});
      case ShimReport::Kind::Ping:
        return link_.send({.kind = ShimRequest::Kind::Pong, .number = report.count});
      case ShimReport::Kind::SignalReceived:
        for (int i = 0; i < report.count; ++i)
          on_signal(report.status);
        return;
    }
  }

  bool is_handled(int number) const {
    return std::ranges::count(options_.signals_to_handle, number) > 0;
  }

  void on_signal(int number) {
    if (!is_handled(number) && number != SIGINT) {  // It is one of SplitOptions::requests.
      if (!notices_.on_signal(number)) hangs_.write_stacks_on_signal(number);
      return;
    }
    work_.on_signal();
    notices_.node_leaves(number);
    stop_.on_signal(number, supervisor_.state(), supervisor_.next_deadline());
    feed(SignalArrived{.number = number, .for_workers = is_handled(number) ? 0 : SIGTERM});
  }

  void on_logs_full(const std::string& why) {
    if (logs_full_ || supervisor_.finished()) return;
    logs_full_ = why;
    spdlog::error("{}: stopping the workers (--log-on-full=drop goes on without some logs)", why);
    feed(SignalArrived{.number = SIGTERM, .is_own = true, .reason = why});
  }

  void on_shim_lost() {  // The kernel has killed the workers. This kills their descendants.
    hangs_.cancel();
    if (ended_) return io_.stop();
    kill_job(
        sessions_, [this](std::string_view variable) { return marks_job(variable, job_); },
        WorkerCgroup(cgroup_));
    run_files_.remove(false);
    ::_exit(1);
  }

  // --- the rendezvous ---------------------------------------------------------------------------
  RendezvousSession::Handlers session_handlers() {
    return {
        .on_round = [this](const SessionRound& round) { on_round(round); },
        .on_restart =
            [this](const SessionRestart& restart) {
              stop_.on_restart(restart.why, restart.is_planned, supervisor_.state());
              feed(RestartOrdered{.for_notice = restart.for_notice});
            },
        .on_end =
            [this](const auto& end) {
              const std::string node = end.failed_node.empty() ? "" : end.failed_node + ": ";
              if (end.preempted) stop_.on_preempted(end.why, supervisor_.state());
              feed(JobEnded{.succeeded = end.succeeded,
                            .reason = node + end.why,
                            .preempted = end.preempted,
                            .without_progress = end.without_progress,
                            .hopeless = end.hopeless});
            },
        .on_notice = [this](const JobNotice& notice) { notices_.on_job_notice(notice); },
        .on_failed =
            [this](const std::string& why) {
              if (supervisor_.state() != Supervisor::State::Joining)
                spdlog::warn("the rendezvous has failed, so no round will follow: {}", why);
              feed(RendezvousFailed{why});
            },
        .host_store = [this](const auto& done) { workers_store_.prepare(done); },
        .restrict_store = [this](const std::string& address) { workers_store_.listen_at(address); },
        .set_store_token = [this](const auto& token) { workers_store_.set_token(token); },
        .set_reach_answer =
            [this](std::int64_t generation, std::optional<Instant> whole_at) {
              workers_store_.set_reach_answer(generation, whole_at);
            },
        .on_asked = [this](const auto& asked,
                           auto done) { answers_.answer(asked, std::move(done)); }};
  }

  void on_round(const SessionRound& round) {
    round_ = round.facts;
    reporter_.round_begins(round.round);
    round_.use_agent_store = options_.rendezvous.shares_store;
    feed(RendezvousCompleted{round.job_decides ? std::optional(round.facts.restart_count)
                                               : std::nullopt});
  }

  void apply(const JoinRendezvous&) {
    log_info("Rendezvous'ing worker group");
    event_log_.rendezvous_begun(supervisor_.restart_count());
    notices_.joins();
    if (!logs_specs_) return session_->join();
    logs_specs_->load([this](const std::string& problem) {
      if (supervisor_.finished()) return;
      if (!problem.empty()) return feed(RendezvousFailed{problem});
      session_->join();
    });
  }

  void apply(const WaitToJoin& action) { spdlog::warn("{}", restart_wait_text(action.wait)); }

  void apply(const ReportEnd& action) {
    if (action.succeeded)
      log_info("worker group successfully finished. Waiting for other agents to finish.");
    reported_ = now();
    session_->finished(action.succeeded, action.reason);
  }

  void apply(const LeaveRendezvous&) { session_->leave(); }
  // --- starting the workers of an attempt -------------------------------------------------------
  void apply(const StartWorkers& action) {
    event_log_.rendezvous_completed();
    round_.restart_count = action.restart_count;
    event_log_.ranks_assigned(round_);
    reporter_.ranks_assigned(round_.ranks);
    for (std::string& line : rendezvous_text(options_, round_))
      spdlog::info("{}", std::move(line));
    log_info("Starting worker group");
    stop_.begin_attempt();
    workers_.attempt_begins();
    progress_.begin_attempt();
    start_pending_ = true;
    // If a slow console holds back output of earlier attempts, the start of this one waits for it.
    ++attempt_;
    if (!last_attempt_) return request_log_destinations();
    job_end_.end_attempt(group_, *last_attempt_, [this, attempt = attempt_] {
      if (start_pending_ && attempt == attempt_) request_log_destinations();
    });
  }

  void request_log_destinations() {
    if (!logs_specs_) return start_workers(nullptr);
    logs_specs_->request_dest(group_.announce(round_),
                              [this, attempt = attempt_](const auto& dest) {
                                if (!start_pending_ || attempt != attempt_)
                                  return;  // The attempt was stopped meanwhile.
                                if (!dest) return fail_starts(dest.error().text);
                                start_workers(&*dest);
                              });
  }

  void start_workers(const LogsDest* dest) {
    last_attempt_ = round_.restart_count;
    group_.prepare(round_, run_files_, dest == nullptr ? std::nullopt : std::optional(*dest), work_,
                   [this, attempt = attempt_](const auto& problem) {
                     if (run_files_.take_restored() && !ended_) adopt_run_files();
                     if (!start_pending_ || attempt != attempt_) return;
                     if (problem) return fail_starts(problem->reason);
                     send_starts();
                   });
  }

  void send_starts() {  // The shim starts each worker while the next request is prepared.
    start_pending_ = false;
    answers_.attempt_begins(reporter_.starts(), group_.logs());
    for (int rank = 0; rank < options_.local_world_size; ++rank) {
      auto start = group_.make_start(work_.pump(), LocalRank{rank});
      if (!start) return fail_starts(start.error().reason, rank);
      link_.send(start->request, std::move(start->fds));
    }
    group_.finish_starts(work_.pump());
  }

  void fail_starts(const std::string& reason, int from = 0) {
    start_pending_ = false;
    for (int rank = from; rank < options_.local_world_size; ++rank)
      feed(WorkerStartFailed{LocalRank{rank}, reason});
  }

  void cancel_start() {  // The attempt ends before its start requests were sent.
    if (std::exchange(start_pending_, false)) fail_starts("stopped before the start");
  }

  // --- failed workers, stopping workers ---------------------------------------------------------
  void apply(const AnnounceFailure& action) {
    work_.pump().catch_up(kCatchUpLimit);
    spdlog::error("{}", failure_text(options_, action, group_.pid(action.rank)));
    if (options_.restart_policy.on) {
      spdlog::warn("{}", restart_by_policy_text(options_));
    } else if (action.restarts_left != 0) {
      spdlog::info("{}", restart_text(options_, action.restarts_left));
      spdlog::warn("{}", restarting_text(options_, action.restarts_left));
    }
    if (const auto note = group_.early_ends(action.rank); !note.empty()) spdlog::warn("{}", note);
    reporter_.failed(action.rank, action.exit, group_.ended_because(action.rank));
    const int rank = round_.ranks.global_rank(action.rank).value;
    session_->workers_failed(
        {"rank " + std::to_string(rank) + " " + exit_text(action.exit), action.hung});
  }

  void apply(const EndWorker& action) { stop_.end_worker(action); }
  void apply(const SignalWorkers& action) {
    log_info("Stopping worker group");
    stop_.signal_workers(action, supervisor_.next_deadline());
    cancel_start();
  }

  void apply(const KillEverything& action) {
    stop_.kill_everything(action);
    cancel_start();
  }

  // --- the end of the job -----------------------------------------------------------------------
  void apply(const Finish& action) {
    if (ends_early_) return;  // A signal does not change the report that is being made.
    work_.job_ends();
    job_end_.read_ends(group_, [this, action](const JobEnd::Ends& ends) { finish(action, ends); });
  }

  void finish(const Finish& action, const JobEnd::Ends& ends) {
    if (reported_ && action.why == Finish::Why::Succeeded)
      log_info(exit_barrier_text(now() - *reported_));
    event_log_.finished(action, ends, logs_full_);
    const JobOutcome outcome =
        job_outcome(action, {.launcher_pid = launcher_pid_,
                             .propagate_exit_code = options_.propagate_exit_code,
                             .is_interrupt = action.signal == SIGINT && !is_handled(SIGINT),
                             .logs_full = logs_full_});
    // Stack files may be in the run directory: it is then kept as after a failure.
    const bool succeeded = outcome.succeeded && !hangs_.has_written_stacks();
    stop_.set_channel(nullptr);
    notices_.set_channel(nullptr);
    channel_.reset();
    progress_.stop();
    job_end_.report(
        outcome, group_, ends, [this, succeeded] { run_files_.remove(succeeded); },
        [this, signal = outcome.signal](int exit_code) { end(exit_code, signal); });
  }

  void end(int exit_code, int signal = 0) {
    ended_ = true;
    hangs_.cancel();
    session_->close();
    const auto last = [this, exit_code, signal] {
      if (!logs_specs_) return send_end(exit_code, signal);
      logs_specs_->close([this, exit_code, signal] { send_end(exit_code, signal); });
    };
    const auto then = [this, last] { notices_.close(last); };
    call_within(io_, kDrainLimit, then, [this](const auto& finish) { session_->drain(finish); });
  }

  void send_end(int exit_code, int signal) {
    ended_ = true;
    link_.send({.kind = ShimRequest::Kind::End, .number = signal, .exit_code = exit_code});
    end_when_sent();
  }

  void end_when_sent() {
    if (!link_.idle()) return asio::post(io_, [this] { end_when_sent(); });
    io_.stop();
  }

  void log_info(const std::string& text) { spdlog::info("{}", "[" + options_.role + "] " + text); }

  const AgentOptions& options_;
  const std::string job_;
  const std::vector<std::string> environment_;
  asio::io_context io_{1};
  asio::steady_timer timer_;
  std::optional<Instant> armed_;
  ShimLink link_;
  WorkerTable workers_;
  WorkerStop stop_;
  LogWork work_;
  JobEnd job_end_;
  EventLog event_log_;
  Supervisor supervisor_;
  std::deque<SupervisorEvent> events_;
  bool feeding_ = false;
  RunFiles& run_files_;
  WorkerGroup group_;
  std::shared_ptr<LogsSpecsProgram> logs_specs_;  // Null without --logs-specs.
  HangResponse hangs_;
  NodeAnswers answers_;
  NodeReporter reporter_;
  ProgressWatch progress_;
  NoticeResponse notices_;
  const int launcher_pid_;
  const std::string cgroup_;
  std::unique_ptr<Watchdogs> watchdogs_;
  std::unique_ptr<WorkerChannel> channel_;
  WorkersStore workers_store_;
  std::shared_ptr<RendezvousSession> session_;
  RoundFacts round_;
  int starts_ = 0;                        // Workers started, in all attempts.
  JobSessions sessions_;                  // Of this attempt's workers: for kill_job().
  std::optional<Instant> reported_;       // When this node reported its end to the rendezvous.
  int attempt_ = 0;                       // Counts the StartWorkers actions.
  std::optional<int> last_attempt_;       // The restart count of the last attempt.
  bool start_pending_ = false;            // This attempt's start requests are not sent yet.
  std::optional<std::string> logs_full_;  // The reason, after --log-on-full=fail ended it.
  bool ends_early_ = false;               // The job could not begin.
  bool ended_ = false;
};

}  // namespace

int run_agent(const AgentOptions& options, AgentContext context) {
  return Agent(options, std::move(context)).run();
}

}  // namespace muster

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
#include "agent/core/stop_lines.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_table.h"
#include "agent/io/agent_lines.h"
#include "agent/io/event_log.h"
#include "agent/io/failure_output.h"
#include "agent/io/hang_response.h"
#include "agent/io/job_end.h"
#include "agent/io/log_work.h"
#include "agent/io/logs_specs_program.h"
#include "agent/io/node_answers.h"
#include "agent/io/node_reporter.h"
#include "agent/io/owned_name.h"
#include "agent/io/shim_link.h"
#include "agent/io/watchdogs.h"
#include "agent/io/worker_channel.h"
#include "agent/io/worker_group.h"
#include "agent/posix/job_cleanup.h"
#include "agent/posix/shim_reports.h"
#include "agent/sessions/session_choice.h"
#include "agent/sessions/workers_store.h"
#include "rendezvous/core/limit_advice.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

// A line about a worker's end waits so long for what the worker wrote last.
constexpr Duration kCatchUpLimit = 250ms;

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
        work_(io_, options.log.dir.empty() ? "a temporary folder" : options.log.dir),
        job_end_(options, work_),
        event_log_(options, host_name(), [this](std::string line) { work_.say(std::move(line)); }),
        supervisor_({.local_world_size = options.local_world_size,
                     .max_restarts = options.max_restarts,
                     .stop_timeout = options.shutdown_timeout}),
        places_(surroundings.places),
        hangs_(io_, workers_, environment_, options.hang_timeout,
               {.workers = [this] { return WorkerGroup::living(group_.get()); },
                .program = [this] { return group_->program(); },
                .on_hung =
                    [this](LocalRank rank, const std::string& why) {
                      group_->explain(rank, why);
                      feed(WorkerHung{rank});
                    }}),
        answers_(io_, work_, hangs_),
        reporter_(io_, options.local_world_size, [this](const auto& is) { session_->report(is); }),
        launcher_pid_(surroundings.launcher_pid),
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
      const EndCause cause = lack("cannot start the log thread: " + error.message() +
                                  start_limit_advice(error.value()));
      spdlog::error("{}", cause.text);
      report_early_end(options_, cause);
      send_end(1, 0);
    } else {
      make_places();
    }
    io_.run();
    return 0;  // Nobody reads it: the shim knows the outcome already.
  }

 private:
  // The front and the shim exist already: each of the three removes the places if the others die.
  void make_places() {
    group_ = std::make_unique<WorkerGroup>(
        options_, WorkerGroup::Surroundings{environment_, job_, host_name(), std::string()},
        [this](const auto& why) { asio::post(io_, [this, why] { on_logs_full(why); }); });
    job_end_.on_ends([this](const auto& ends) { reporter_.ended(ends); });
    auto problem = std::make_shared<std::string>();
    work_.run([this, problem] { *problem = places_.make(); },
              [this, problem](bool) { begin(*problem); });
  }

  void begin(const std::string& problem) {
    if (supervisor_.finished()) return;  // By a signal, before anything had begun.
    if (!problem.empty()) return give_up(problem);
    watchdogs_ = std::make_unique<Watchdogs>(
        io_, workers_, environment_, places_.fifo(),
        Watchdogs::Handlers{
            .on_reason = [this](LocalRank rank, const auto& why) { group_->explain(rank, why); },
            .on_stuck = [this](LocalRank rank) { feed(WorkerHung{rank}); }});
    open_channel();
    feed(Begun{});
  }

  void open_channel() {
    OwnedFd listener = places_.take_channel();
    if (listener.get() < 0) return;
    channel_ = std::make_unique<WorkerChannel>(
        io_, std::move(listener), places_.channel_path(), options_.local_world_size,
        WorkerChannel::Handlers{[this](LocalRank rank, auto step) {
                                  if (step) reporter_.progressed(rank, *step);
                                  hangs_.progressed(rank);
                                },
                                [this](LocalRank rank) { hangs_.ended_progress(rank); },
                                [this](LocalRank rank) { signal_one(rank); }});
    group_->set_channel(channel_->path());
  }

  void give_up(const std::string& reason) {
    spdlog::error("{}", reason);
    job_end_.report_early_end(
        lack(reason), [this] { places_.tidy(false); }, [this] { end(1); });
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
        sessions_[report.pid] = {.start = ticks_since_boot(), .end = std::nullopt};
        workers_.started(LocalRank{report.worker}, report.pid);
        // Not before the first attempt has begun: no worker waits for it, nor for a CPU.
        if (++starts_ == options_.local_world_size)
          work_.pump().run([this] { places_.tidy_after_dead_owners(); });
        return feed(WorkerStarted{LocalRank{report.worker}});
      case ShimReport::Kind::StartFailed:
        return feed(WorkerStartFailed{LocalRank{report.worker}, group_->start_failure(report)});
      case ShimReport::Kind::Exited: {
        group_->ended(report);
        sessions_[report.pid].end = ticks_since_boot();
        const WorkerExit exit = exit_of(report);
        workers_.ended(LocalRank{report.worker}, exit);
        return feed(WorkerEnded{LocalRank{report.worker}, exit});
      }
      case ShimReport::Kind::Told:
        group_->told(report);
        if (auto line = stop_lines_.told(report.pid, report.status, stopping_))
          spdlog::warn("{}", std::move(*line));
        return;
      case ShimReport::Kind::AllGone:
        report.pid != 0 ? log_left_behind(report.pid) : sessions_.clear();
        return feed(EverythingGone{.complete = report.pid == 0});
      case ShimReport::Kind::Ping:
        return link_.send({.kind = ShimRequest::Kind::Pong, .number = report.count});
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
    work_.on_signal();
    const Supervisor::State before = supervisor_.state();
    const bool stopping = has_workers(before);
    // A tenth of the time is left between the end of what workers have and SIGKILL.
    if (stopping && signals_ == 0 && channel_)
      channel_->preempt(now() + options_.shutdown_timeout - options_.shutdown_timeout / 10);
    log_signal(number, {.before = before,
                        .is_first = !stopping || signals_++ == 0,
                        .shutdown_timeout = options_.shutdown_timeout});
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

  // The shim is gone, so nobody owns the workers: those that it started itself have died with it.
  void on_shim_lost() {
    hangs_.cancel();
    if (ended_) return io_.stop();
    kill_job(
        sessions_, [this](std::string_view variable) { return marks_job(variable, job_); },
        WorkerCgroup(shim_pid_));
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
        .host_store = [this](const auto& done) { workers_store_.prepare(done); },
        .store_at = [this](const std::string& address) { workers_store_.listen_at(address); },
        .vouch =
            [this](std::int64_t generation, std::optional<Instant> whole_at) {
              workers_store_.vouch(generation, whole_at);
            },
        .on_asked =
            [this](const NodeAsked& asked, auto done) {
              answers_.answer(asked, group_.get(), reporter_.starts(), std::move(done));
            }};
  }

  void on_round(const SessionRound& round) {
    round_ = round.facts;
    reporter_.round_begins(round.round);
    round_.use_agent_store = options_.rendezvous.shares_store;
    feed(RendezvousCompleted{round.job_decides ? std::optional(round.facts.restart_count)
                                               : std::nullopt});
  }

  void carry_out(const StartWorkers& action) {
    event_log_.rendezvous_completed();
    round_.restart_count = action.restart_count;
    event_log_.ranks_assigned(round_);
    reporter_.ranks_assigned(round_.ranks);
    for (std::string& line : rendezvous_text(options_, round_))
      spdlog::info("{}", std::move(line));
    info("Starting worker group");
    stop_lines_.begin_attempt();
    workers_.attempt_begins();
    if (channel_) channel_->reset();
    is_to_start_ = true;
    // Output of earlier attempts may wait for a console that nobody reads: then workers wait, too.
    ++attempt_;
    if (!last_attempt_) return place_logs();
    job_end_.end_attempt(*group_, *last_attempt_, [this, attempt = attempt_] {
      if (is_to_start_ && attempt == attempt_) place_logs();
    });
  }

  void place_logs() {
    if (!logs_specs_) return start_workers(nullptr);
    const auto environments = group_->announce(round_);
    if (!environments) return no_worker_starts(environments.error().reason);
    logs_specs_->place(*environments, [this, attempt = attempt_](const auto& placed) {
      if (!is_to_start_ || attempt != attempt_) return;  // Nobody waits for it any more.
      if (!placed) return no_worker_starts(placed.error().text);
      start_workers(&*placed);
    });
  }

  void start_workers(const LogsDest* dest) {
    last_attempt_ = round_.restart_count;
    group_->prepare(round_, places_.run_dir(),
                    dest == nullptr ? std::nullopt : std::optional(*dest), work_,
                    [this, attempt = attempt_](const auto& problem) {
                      if (!is_to_start_ || attempt != attempt_) return;
                      if (problem) return no_worker_starts(problem->reason);
                      send_starts();
                    });
  }

  // Each is on its way before the next is prepared: the shim starts it meanwhile.
  void send_starts() {
    is_to_start_ = false;
    for (int rank = 0; rank < options_.local_world_size; ++rank) {
      auto start = group_->make_start(work_.pump(), LocalRank{rank});
      if (!start) return no_worker_starts(start.error().reason, rank);
      link_.send(start->request, std::move(start->fds));
    }
    group_->starts_made(work_.pump());
  }

  void no_worker_starts(const std::string& reason, int from = 0) {
    is_to_start_ = false;
    for (int rank = from; rank < options_.local_world_size; ++rank)
      feed(WorkerStartFailed{LocalRank{rank}, reason});
  }

  // The attempt is over before its workers were asked for.
  void give_up_start() {
    if (std::exchange(is_to_start_, false)) no_worker_starts("stopped before the start");
  }

  void carry_out(const EndWorker& it) {
    link_.send(
        {.kind = ShimRequest::Kind::SignalProcess, .worker = it.rank.value, .number = it.number});
  }

  void carry_out(const SignalWorkers& action) {
    workers_.attempt_ends();
    info("Stopping worker group");
    stop_lines_.begin_stop();
    stopping_ = static_cast<int>(workers_.running().size());
    stop_signal_ = action.number;
    for (LocalRank rank{0}; rank.value < options_.local_world_size; ++rank.value)
      if (!channel_ || !channel_->ends_itself(rank)) signal_one(rank);
    give_up_start();
  }

  // Also for one that had the notice, wanted to end by itself, and is still there.
  void signal_one(LocalRank rank) {
    link_.send({.kind = ShimRequest::Kind::Signal, .worker = rank.value, .number = stop_signal_});
  }

  void carry_out(const KillEverything&) {
    workers_.attempt_ends();
    stopping_ = static_cast<int>(workers_.running().size());
    link_.send({.kind = ShimRequest::Kind::KillAll});
    give_up_start();
  }

  void carry_out(const AnnounceFailure& action) {
    work_.pump().catch_up(kCatchUpLimit);
    log_failure(options_, action, group_->pid(action.rank));
    reporter_.failed(action.rank, action.exit, group_->ended_because(action.rank));
    session_->workers_failed(failed_rank_text(round_.ranks.global_rank(action.rank), action.exit));
  }

  void carry_out(const ReportEnd& action) {
    if (action.succeeded)
      info("worker group successfully finished. Waiting for other agents to finish.");
    reported_ = now();
    session_->finished(action.succeeded, action.what);
  }

  void carry_out(const LeaveRendezvous&) { session_->leave(); }

  void carry_out(const Finish& action) {
    work_.job_ends();
    job_end_.read_ends(*group_, [this, action](const JobEnd::Ends& ends) { finish(action, ends); });
  }

  void finish(const Finish& action, const JobEnd::Ends& ends) {
    if (reported_ && action.why == Finish::Why::Succeeded)
      info("Done waiting for other agents. Elapsed: " +
           std::to_string(std::chrono::duration<double>(now() - *reported_).count()) + " seconds");
    event_log_.finished(action, ends, logs_full_);
    const JobOutcome outcome =
        job_outcome(action, {.launcher_pid = launcher_pid_,
                             .propagate_exit_code = options_.propagate_exit_code,
                             .logs_full = logs_full_});
    // Whoever asked for stacks wants to read them.
    const bool succeeded = outcome.succeeded && !hangs_.has_written();
    channel_.reset();
    job_end_.report(
        outcome, *group_, ends, [this, succeeded] { places_.tidy(succeeded); },
        [this, signal = outcome.signal](int exit_code) { end(exit_code, signal); });
  }

  void info(const std::string& text) { spdlog::info("{}", "[" + options_.role + "] " + text); }

  /// Tells the shim, which ends the whole; its end ends us.
  void end(int exit_code, int signal = 0) {
    ended_ = true;
    hangs_.cancel();
    session_->close();
    session_->drain([this, exit_code, signal] {
      if (!logs_specs_) return send_end(exit_code, signal);
      logs_specs_->close([this, exit_code, signal] { send_end(exit_code, signal); });
    });
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

  const AgentOptions& options_;
  const std::string job_;
  const std::vector<std::string> environment_;
  asio::io_context io_{1};
  asio::steady_timer timer_;
  std::optional<Instant> armed_;
  ShimLink link_;
  WorkerTable workers_;
  LogWork work_;
  JobEnd job_end_;
  EventLog event_log_;
  Supervisor supervisor_;
  std::deque<SupervisorEvent> events_;
  bool feeding_ = false;
  StopLines stop_lines_;
  int stopping_ = 0;  // How many lived when the stop began.
  JobPlaces& places_;
  std::unique_ptr<WorkerGroup> group_;
  std::shared_ptr<LogsSpecsProgram> logs_specs_;  // Null: the logs go where we put them.
  HangResponse hangs_;
  NodeAnswers answers_;
  NodeReporter reporter_;
  const int launcher_pid_;
  const int shim_pid_ = ::getppid();
  std::unique_ptr<Watchdogs> watchdogs_;
  std::unique_ptr<WorkerChannel> channel_;
  WorkersStore workers_store_;
  std::shared_ptr<RendezvousSession> session_;
  RoundFacts round_;
  int starts_ = 0;                   // Of workers, in all attempts.
  JobSessions sessions_;             // Of the attempt: for the case that the shim dies.
  std::optional<Instant> reported_;  // When the others were told that this part is over.
  int attempt_ = 0;                  // Counts the starts of this node.
  std::optional<int> last_attempt_;  // The restart count of the workers that were started last.
  int signals_ = 0;
  int stop_signal_ = SIGTERM;
  bool is_to_start_ = false;              // The attempt's workers are not asked for yet.
  std::optional<std::string> logs_full_;  // And on what: --log-on-full=fail.
  bool ended_ = false;
};

}  // namespace

int run_agent(const AgentOptions& options, AgentSurroundings surroundings) {
  return Agent(options, std::move(surroundings)).run();
}

}  // namespace muster

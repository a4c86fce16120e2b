#include "agent/core/supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/watched_time.h"
#include "base/check.h"

namespace muster {

namespace {

constexpr const char* kNeverRan =
    "the job of this run id has ended with success, but this node never had a place in it and has "
    "started no worker; if the nodes belong to different jobs, give each job its own --rdzv-id; if "
    "this node is one more than the job needs, give it --spare";

// The time that a hung worker has for its final output (Python's faulthandler) and its core file.
constexpr Duration kAbortTimeout = std::chrono::seconds(10);

// How long after a notice's deadline this node waits for what follows. Longer than a host's absence
// and the recovery after it may last: then the session says that the rendezvous has failed.
constexpr Duration kAfterNotice = std::chrono::minutes(10);

// How long workers that have answered ahead wait for their notice. The host tells all nodes within
// a second, or when a node is connected again: a node that is away for longer is lost.
constexpr Duration kNoticeOnItsWay = std::chrono::seconds(30);

}  // namespace

SupervisorSettings supervisor_settings(const AgentOptions& options) {
  return {.local_world_size = options.local_world_size,
          .max_restarts = options.max_restarts,
          .restart_policy = options.restart_policy,
          .has_progress_file = !options.progress_file.empty(),
          .stop_timeout = options.shutdown_timeout,
          .leftover_timeout = options.leftover_timeout,
          .must_run = !options.rendezvous.settings.spare};
}

Supervisor::Supervisor(SupervisorSettings settings) : settings_(settings) {
  MUSTER_CHECK(settings_.local_world_size > 0);
  MUSTER_CHECK(settings_.max_restarts >= 0);
  if (settings_.has_progress_file) ledger_.expect_progress();
}

SupervisorActions Supervisor::step(const SupervisorEvent& event, Instant now) {
  if (state_ == State::Done) return {};  // An event that arrives after the job's end.
  return std::visit([this, now](const auto& e) { return on(e, now); }, event);
}

SupervisorActions Supervisor::on(const RendezvousCompleted& event, Instant now) {
  if (state_ != State::Joining) return {};
  state_ = State::Starting;
  job_decides_ = event.job_restarts.has_value();
  restarts_ = event.job_restarts.value_or(restarts_);
  ledger_.begin_attempt(now);
  failed_by_hang_ = false;
  slots_.assign(static_cast<std::size_t>(settings_.local_world_size), Slot::Asked);
  hung_.reset();
  notice_.reset();
  answered_ = false;
  outcome_ = Finish{.why = Finish::Why::Succeeded, .started = true};
  return {StartWorkers{restarts_}};
}

SupervisorActions Supervisor::on(const RendezvousFailed& event, Instant) {
  rendezvous_error_ = event.reason;
  job_over_ = true;  // From now on no message reaches the other nodes.
  const bool waits = state_ == State::Joining;
  if (waits || next_ == Next::Restart) need_round();
  if (state_ == State::Saved) return end_saved("the rendezvous has failed: " + event.reason);
  return waits || state_ == State::Leaving ? finish() : SupervisorActions{};
}

/// The next attempt needs a round. Without a rendezvous the job ends after this attempt.
void Supervisor::need_round() {
  if (rendezvous_error_.empty()) {
    next_ = Next::Restart;
    return;
  }
  next_ = Next::Finish;
  // If a worker's failure led to this rendezvous, that failure stays the cause.
  if (outcome_.why == Finish::Why::Succeeded) outcome_.why = Finish::Why::RendezvousFailed;
  outcome_.reason = rendezvous_error_;
}

SupervisorActions Supervisor::on(const RestartOrdered& event, Instant now) {
  if (!has_workers()) return {};  // Already stopping, joining or leaving.
  need_round();
  return event.for_notice ? stop_for_notice(now) : stop(SIGTERM, now);
}

// A notice tells the workers, which the agent has done: here only its deadline counts.
SupervisorActions Supervisor::on(const JobNoticed& event, Instant now) {
  notice_ = event.deadline;
  if (state_ == State::Saved) deadline_ = std::max(now, event.deadline) + kAfterNotice;
  if (state_ == State::Due) deadline_ = event.deadline;
  return {};
}

SupervisorActions Supervisor::on(const NoticeAnswered&, Instant now) {
  answered_ = true;
  return state_ == State::Due ? stop(SIGTERM, now) : SupervisorActions{};
}

SupervisorActions Supervisor::on(const ProgressMade& event, Instant) {
  if (!has_workers()) return {};
  if (event.step)
    ledger_.note_step(*event.step);
  else
    ledger_.progressed();
  return {};
}

/// The workers of this node have stopped for a notice, and nobody will say what follows. If the
/// notice itself has not come, there was none: the workers have finished.
SupervisorActions Supervisor::end_saved(const std::string& reason) {
  if (!notice_) {
    std::replace(slots_.begin(), slots_.end(), Slot::Saved, Slot::Succeeded);
    return end_attempt();
  }
  outcome_.why = Finish::Why::Preempted;
  outcome_.reason = "the workers of this node have saved and ended for a notice; " + reason;
  return end_attempt();
}

SupervisorActions Supervisor::on(const JobEnded& event, Instant now) {
  job_over_ = true;
  if (state_ == State::Leaving) {
    // The workers of this node have succeeded. A failure of the job is still reported.
    if (!event.succeeded && outcome_.why == Finish::Why::Succeeded) outcome_.reason = event.reason;
    return finish();
  }
  if (state_ == State::Joining) {
    if (event.preempted) outcome_.why = Finish::Why::Succeeded;  // As below.
    if (!event.succeeded)
      record_job_failure(event);
    else if (!outcome_.started && settings_.must_run && outcome_.why == Finish::Why::Succeeded)
      outcome_ = {.why = Finish::Why::RendezvousFailed, .reason = kNeverRan};
    return finish();
  }
  // This node's own success stays: what the workers have left still has its time to end.
  if (has_succeeded()) {
    if (!event.succeeded) outcome_.reason = event.reason;
    return {};
  }
  const bool was_restarting = std::exchange(next_, Next::Finish) == Next::Restart;
  // After a success no other node waits for this one: workers that run go on.
  if (event.succeeded)
    return state_ == State::Saved ? end_saved("the job has ended without them")
                                  : SupervisorActions{};
  // The job would have gone on after the failure that this node was restarting for.
  if (event.preempted && was_restarting) outcome_.why = Finish::Why::Succeeded;
  record_job_failure(event);
  if (event.preempted) return has_workers() ? stop_for_notice(now) : SupervisorActions{};
  return has_workers() || state_ == State::Due ? stop(SIGTERM, now) : SupervisorActions{};
}

// A failure on this node takes precedence over the job's failure.
void Supervisor::record_job_failure(const JobEnded& event) {
  const Finish::Why why = event.preempted ? Finish::Why::Preempted : Finish::Why::JobFailed;
  if (outcome_.why == Finish::Why::Succeeded) outcome_.why = why;
  if (outcome_.why == why) outcome_.reason = event.reason;
  outcome_.without_progress = event.without_progress;
  outcome_.hopeless = event.hopeless;
}

SupervisorActions Supervisor::on(const WorkerStarted& event, Instant now) {
  // The supervisor may have decided to stop after it asked for this start. The shim handles
  // requests in order, so the worker was signalled after it had started.
  if (slot(event.rank) == Slot::Asked) slot(event.rank) = Slot::Alive;
  return after_worker_change(now);
}

SupervisorActions Supervisor::on(const WorkerStartFailed& event, Instant now) {
  slot(event.rank) = Slot::Failed;
  // The same command would fail in the same way again: only workers that ran are restarted.
  if (state_ == State::Starting && outcome_.why == Finish::Why::Succeeded) {
    outcome_.why = Finish::Why::StartFailed;
    outcome_.reason = event.reason;
  }
  return after_worker_change(now);
}

SupervisorActions Supervisor::on(const WorkerEnded& event, Instant now) {
  // A node alone tells all its workers at once, and at a torchrun host no other node is told.
  const bool ahead =
      event.had_answered_ahead && job_decides_ && !job_over_ && rendezvous_error_.empty();
  const Slot ended_well = event.had_answered || ahead ? Slot::Saved : Slot::Succeeded;
  slot(event.rank) = event.exit.ok() ? ended_well : Slot::Failed;
  const bool hung = hung_ == event.rank;
  if (hung) {
    hung_.reset();
    if (state_ == State::Running) deadline_.reset();
  }
  SupervisorActions actions;
  const bool first_failure =
      has_workers() && outcome_.why == Finish::Why::Succeeded && !event.exit.ok();
  if (first_failure) {
    outcome_.why = Finish::Why::WorkerFailed;
    failed_by_hang_ = hung || event.timed_out;
    actions.push_back(
        AnnounceFailure{event.rank, event.exit, restarts_left(failed_by_hang_), failed_by_hang_});
  }
  SupervisorActions more = after_worker_change(now);
  actions.insert(actions.end(), more.begin(), more.end());
  return actions;
}

SupervisorActions Supervisor::after_worker_change(Instant now) {
  switch (state_) {
    case State::Starting:
      if (!any(Slot::Asked)) state_ = State::Running;
      [[fallthrough]];
    case State::Running:
      if (outcome_.why == Finish::Why::Succeeded) return after_success(now);
      decide_restart(now);
      return stop(SIGTERM, now);
    case State::Due:
    case State::Stopping:
      return any(Slot::Alive) || any(Slot::Asked) ? SupervisorActions{} : end_attempt();
    case State::Joining:
    case State::Saved:
    case State::Killing:
    case State::Leaving:
    case State::Done:
      return {};
  }
  return {};
}

/// The workers that have ended so far have ended with 0.
SupervisorActions Supervisor::after_success(Instant now) {
  if (any(Slot::Alive) || any(Slot::Asked)) return {};
  if (!any(Slot::Saved)) return end_attempt();
  if (!rendezvous_error_.empty())
    return end_saved("the rendezvous has failed: " + rendezvous_error_);
  if (job_over_) return end_saved("the job has ended without them");
  state_ = State::Saved;
  deadline_ = std::max(now, notice_.value_or(now)) + wait_in_saved();
  return {};
}

Duration Supervisor::wait_in_saved() const {
  return notice_ ? kAfterNotice : kNoticeOnItsWay;
}

/// Of the budget that a failure costs. The host of a job has its own budgets.
int Supervisor::restarts_left(bool hung) const {
  const RestartPolicy& policy = settings_.restart_policy;
  if (job_decides_) return std::max(0, settings_.max_restarts - restarts_);
  if (hung && policy.counts_hangs()) return policy.hangs.value_or(0) - ledger_.costs().hangs;
  return settings_.max_restarts - ledger_.costs().failures;
}

void Supervisor::decide_restart(Instant now) {
  if (job_over_ || outcome_.why != Finish::Why::WorkerFailed) return;
  next_ = Next::Restart;
  // If the job decides, it answers the failure with the next round or with JobEnded.
  if (job_decides_) return;
  const AttemptEnd end = failed_by_hang_ ? AttemptEnd::Hang : AttemptEnd::Failure;
  const auto decision = ledger_.end_attempt({.how = end, .now = now}, budgets());
  wait_ = decision.wait;
  if (decision.restarts) {
    ++restarts_;
    return;
  }
  next_ = Next::Finish;
  outcome_.without_progress = ledger_.costs().without_progress;
  outcome_.hopeless = decision.hopeless;
}

// Only the hung worker is signalled. It then counts as the failure, and the others as its victims.
SupervisorActions Supervisor::on(const WorkerHung& event, Instant now) {
  if (state_ != State::Running || hung_ || slot(event.rank) != Slot::Alive) return {};
  hung_ = event.rank;
  hung_signal_ = 0;
  return end_hung_worker(now);
}

SupervisorActions Supervisor::end_hung_worker(Instant now) {
  MUSTER_CHECK(hung_.has_value());
  if (hung_signal_ == SIGKILL) {  // SIGKILL did not end the worker: it waits in the kernel.
    outcome_.why = Finish::Why::WorkerFailed;
    outcome_.reason = "a worker that hangs could not be killed";
    return end_attempt();
  }
  hung_signal_ = hung_signal_ == 0 ? SIGABRT : SIGKILL;
  deadline_ = now + kAbortTimeout;
  return {EndWorker{*hung_, hung_signal_}};
}

SupervisorActions Supervisor::on(const EverythingGone& event, Instant now) {
  if (state_ != State::Killing) return {};
  if (next_ == Next::Finish || !event.complete) {
    if (next_ == Next::Restart) {
      next_ = Next::Finish;
      // The workers were stopped for a restart. If no worker has failed, the node has not succeeded
      // either.
      if (outcome_.why == Finish::Why::Succeeded) outcome_.why = Finish::Why::WorkerFailed;
      if (outcome_.reason.empty())
        outcome_.reason = "a process could not be killed: a restart beside it would not be safe";
    }
    return report_end();
  }
  next_ = Next::Finish;
  state_ = State::Joining;
  const Duration wait = std::exchange(wait_, Duration::zero());
  if (wait == Duration::zero()) return {JoinRendezvous{}};
  deadline_ = later(now, wait);
  return {WaitToJoin{wait}};
}

SupervisorActions Supervisor::on(const SignalArrived& event, Instant now) {
  const bool again = !event.is_own && std::exchange(signalled_, true);
  // A decision that was already made stays: if the job is already ending, its cause and its summary
  // do not change. A restart is cancelled.
  const bool ends = state_ == State::Killing || state_ == State::Leaving;
  const bool decided = ends || outcome_.why != Finish::Why::Succeeded;
  SupervisorActions actions;
  if (!decided || next_ == Next::Restart || state_ == State::Joining) {
    outcome_.why = Finish::Why::Signalled;
    outcome_.signal = event.number;
    // A signal from outside ends this node alone. A stop of muster's own ends the job: report_end()
    // reports a failure to the other nodes.
    if (event.is_own && state_ != State::Joining) {
      outcome_.reason = event.reason;
    } else {
      if (!job_over_) actions.push_back(LeaveRendezvous{});
      job_over_ = true;
    }
  } else if (ends && outcome_.why == Finish::Why::Succeeded) {
    // This node does not wait for the others. They are told, now or earlier, that it has succeeded.
    work_done_ = true;
    outcome_.why = Finish::Why::Signalled;
    outcome_.signal = event.number;
  }
  next_ = Next::Finish;
  SupervisorActions more =
      on_signal(event.for_workers != 0 ? event.for_workers : event.number, again, now);
  actions.insert(actions.end(), more.begin(), more.end());
  return actions;
}

SupervisorActions Supervisor::on_signal(int number, bool again, Instant now) {
  switch (state_) {
    case State::Joining:
    case State::Leaving:
      return finish();
    case State::Starting:
    case State::Running:
    case State::Saved:
    case State::Due:
      return again ? kill() : stop(number, now);
    case State::Stopping:
      if (again) return kill();
      return {SignalWorkers{number}};  // A worker may handle this signal in a way of its own.
    case State::Killing:
      return again ? kill()
                   : SupervisorActions{KillEverything{clean_up_times(settings_.leftover_timeout)}};
    case State::Done:
      return {};
  }
  return {};
}

SupervisorActions Supervisor::on(const TimePassed&, Instant now) {
  if (!deadline_ || now < *deadline_) return {};
  if (state_ == State::Due) return stop(SIGTERM, now);
  if (state_ == State::Joining) {
    deadline_.reset();
    return {JoinRendezvous{}};
  }
  if (must_restart_timeout(*deadline_, now)) {
    const bool ends_hung = hung_ && state_ == State::Running;
    deadline_ = now + (ends_hung                ? kAbortTimeout
                       : state_ == State::Saved ? wait_in_saved()
                                                : settings_.stop_timeout);
    return {};
  }
  deadline_.reset();
  if (state_ == State::Running && hung_) return end_hung_worker(now);
  // The other nodes may wait for these workers: they are told that this node has not succeeded.
  if (state_ == State::Saved) return end_saved("no end and no new round has followed");
  return state_ == State::Stopping ? end_attempt() : SupervisorActions{};
}

SupervisorActions Supervisor::stop(int signal, Instant now) {
  if (!any(Slot::Alive) && !any(Slot::Asked)) return end_attempt();
  state_ = State::Stopping;
  deadline_ = now + settings_.stop_timeout;
  return {SignalWorkers{signal}};
}

/// The host has ended the round at its deadline, or because all nodes have answered. This node has
/// got the notice with the time that was left when the host sent it, so its workers were told a
/// later deadline.
SupervisorActions Supervisor::stop_for_notice(Instant now) {
  const bool has_time = notice_ && now < *notice_ && !answered_;
  if (!has_time || !(any(Slot::Alive) || any(Slot::Asked))) return stop(SIGTERM, now);
  state_ = State::Due;
  deadline_ = notice_;
  return {};
}

// Also runs after workers that succeeded: what they leave gets time to end, but does not outlive
// muster.
SupervisorActions Supervisor::end_attempt() {
  state_ = State::Killing;
  deadline_.reset();
  LeftoverTimes times = clean_up_times(settings_.leftover_timeout);
  if (has_succeeded()) times.until_sigterm = settings_.leftover_timeout;
  return {KillEverything{times}};
}

// The user does not want to wait any longer.
SupervisorActions Supervisor::kill() {
  state_ = State::Killing;
  deadline_.reset();
  return {KillEverything{}};
}

/// Whether all workers of this node have succeeded, and nothing follows but the node's end.
bool Supervisor::has_succeeded() const {
  const auto succeeded = [](Slot slot) { return slot == Slot::Succeeded; };
  return state_ == State::Killing && next_ == Next::Finish &&
         outcome_.why == Finish::Why::Succeeded &&
         std::all_of(slots_.begin(), slots_.end(), succeeded);
}

SupervisorActions Supervisor::report_end() {
  if (job_over_) return finish();
  state_ = State::Leaving;
  if (!work_done_) return {ReportEnd{outcome_.why == Finish::Why::Succeeded, outcome_.reason}};
  SupervisorActions actions{ReportEnd{true, ""}};
  actions.push_back(finish().front());
  return actions;
}

SupervisorActions Supervisor::finish() {
  state_ = State::Done;
  deadline_.reset();
  return {outcome_};
}

bool Supervisor::has_workers() const {
  return state_ == State::Starting || state_ == State::Running || state_ == State::Saved;
}

bool Supervisor::any(Slot wanted) const {
  return std::find(slots_.begin(), slots_.end(), wanted) != slots_.end();
}

Supervisor::Slot& Supervisor::slot(LocalRank rank) {
  MUSTER_CHECK(rank.value >= 0 && static_cast<std::size_t>(rank.value) < slots_.size());
  return slots_[static_cast<std::size_t>(rank.value)];
}

}  // namespace muster

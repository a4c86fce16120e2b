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

}  // namespace

SupervisorSettings supervisor_settings(const AgentOptions& options) {
  return {.local_world_size = options.local_world_size,
          .max_restarts = options.max_restarts,
          .stop_timeout = options.shutdown_timeout,
          .leftover_timeout = options.leftover_timeout,
          .must_run = !options.rendezvous.settings.spare};
}

Supervisor::Supervisor(SupervisorSettings settings) : settings_(settings) {
  MUSTER_CHECK(settings_.local_world_size > 0);
  MUSTER_CHECK(settings_.max_restarts >= 0);
}

SupervisorActions Supervisor::step(const SupervisorEvent& event, Instant now) {
  if (state_ == State::Done) return {};  // An event that arrives after the job's end.
  return std::visit([this, now](const auto& e) { return on(e, now); }, event);
}

SupervisorActions Supervisor::on(const RendezvousCompleted& event, Instant) {
  if (state_ != State::Joining) return {};
  state_ = State::Starting;
  job_decides_ = event.job_restarts.has_value();
  restarts_ = event.job_restarts.value_or(restarts_);
  slots_.assign(static_cast<std::size_t>(settings_.local_world_size), Slot::Asked);
  hung_.reset();
  outcome_ = Finish{.why = Finish::Why::Succeeded, .started = true};
  return {StartWorkers{restarts_}};
}

SupervisorActions Supervisor::on(const RendezvousFailed& event, Instant) {
  rendezvous_error_ = event.reason;
  job_over_ = true;  // From now on no message reaches the other nodes.
  const bool waits = state_ == State::Joining;
  if (waits || next_ == Next::Restart) need_round();
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

SupervisorActions Supervisor::on(const RestartOrdered&, Instant now) {
  if (!has_workers()) return {};  // Already stopping, joining or leaving.
  need_round();
  return stop(SIGTERM, now);
}

SupervisorActions Supervisor::on(const JobEnded& event, Instant now) {
  job_over_ = true;
  if (state_ == State::Leaving) {
    // The workers of this node have succeeded. A failure of the job is still reported.
    if (!event.succeeded && outcome_.why == Finish::Why::Succeeded) outcome_.reason = event.reason;
    return finish();
  }
  if (state_ == State::Joining) {
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
  next_ = Next::Finish;  // No round follows.
  // After a success no other node waits for this one: workers that run go on.
  if (event.succeeded) return {};
  record_job_failure(event);
  return has_workers() ? stop(SIGTERM, now) : SupervisorActions{};
}

// A failure on this node takes precedence over the job's failure.
void Supervisor::record_job_failure(const JobEnded& event) {
  if (outcome_.why == Finish::Why::Succeeded) outcome_.why = Finish::Why::JobFailed;
  if (outcome_.why == Finish::Why::JobFailed) outcome_.reason = event.reason;
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
  slot(event.rank) = event.exit.ok() ? Slot::Succeeded : Slot::Failed;
  if (hung_ == event.rank) {
    hung_.reset();
    if (state_ == State::Running) deadline_.reset();
  }
  SupervisorActions actions;
  const bool first_failure =
      has_workers() && outcome_.why == Finish::Why::Succeeded && !event.exit.ok();
  if (first_failure) {
    outcome_.why = Finish::Why::WorkerFailed;
    actions.push_back(AnnounceFailure{event.rank, event.exit, settings_.max_restarts - restarts_});
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
      if (outcome_.why == Finish::Why::Succeeded)
        return any(Slot::Alive) || any(Slot::Asked) ? SupervisorActions{} : end_attempt();
      decide_restart();
      return stop(SIGTERM, now);
    case State::Stopping:
      return any(Slot::Alive) || any(Slot::Asked) ? SupervisorActions{} : end_attempt();
    case State::Joining:
    case State::Killing:
    case State::Leaving:
    case State::Done:
      return {};
  }
  return {};
}

void Supervisor::decide_restart() {
  if (job_over_ || outcome_.why != Finish::Why::WorkerFailed) return;
  // If the job decides, it answers the failure with the next round or with JobEnded.
  if (!job_decides_ && restarts_ >= settings_.max_restarts) return;
  if (!job_decides_) ++restarts_;
  next_ = Next::Restart;
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

SupervisorActions Supervisor::on(const EverythingGone& event, Instant) {
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
  return {JoinRendezvous{}};
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
  if (must_restart_timeout(*deadline_, now)) {
    deadline_ = now + (hung_ && state_ == State::Running ? kAbortTimeout : settings_.stop_timeout);
    return {};
  }
  deadline_.reset();
  if (state_ == State::Running && hung_) return end_hung_worker(now);
  return state_ == State::Stopping ? end_attempt() : SupervisorActions{};
}

SupervisorActions Supervisor::stop(int signal, Instant now) {
  if (!any(Slot::Alive) && !any(Slot::Asked)) return end_attempt();
  state_ = State::Stopping;
  deadline_ = now + settings_.stop_timeout;
  return {SignalWorkers{signal}};
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
  return state_ == State::Starting || state_ == State::Running;
}

bool Supervisor::any(Slot wanted) const {
  return std::find(slots_.begin(), slots_.end(), wanted) != slots_.end();
}

Supervisor::Slot& Supervisor::slot(LocalRank rank) {
  MUSTER_CHECK(rank.value >= 0 && static_cast<std::size_t>(rank.value) < slots_.size());
  return slots_[static_cast<std::size_t>(rank.value)];
}

}  // namespace muster

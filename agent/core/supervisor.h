// Decides when the worker group of one node is started, stopped and restarted, and how it ended.
//
// Pure: no process, no clock, no log. The same events at the same instants always give the same
// actions. State table: docs/supervision.md. The rules are torchrun 2.13's (one failed worker fails
// the group; a failure costs a restart) except where docs/compatibility.md says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/leftovers.h"
#include "agent/core/worker_end.h"
#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/rounds/restart_ledger.h"

namespace muster {

// --- events ------------------------------------------------------------------------------------

/// The ranks are known: workers may start.
struct RendezvousCompleted {
  /// The restart count, if the rendezvous counts the failures of the whole job and decides about
  /// restarts. Empty: this node counts its own failures, as torchrun does.
  std::optional<int> job_restarts;
};
/// A permanent failure: the session has already retried. Workers that run go on, without restarts.
struct RendezvousFailed {
  std::string reason;
};
/// Another node failed, left or wants to join: this node stops its workers and joins the rendezvous
/// again. This uses none of this node's restarts.
struct RestartOrdered {
  /// The round ends for the notice of the job. Workers that have not answered it keep the time that
  /// they were told.
  bool for_notice = false;
};
/// The job has ended on all nodes.
struct JobEnded {
  bool succeeded = true;
  std::string reason;  // If it failed: which worker or node failed, and how.
  /// The job was stopped because nodes of it go: no node has failed. `reason` says why they go.
  /// Workers that have not answered the notice keep the time that they were told.
  bool preempted = false;
  /// So many attempts in a row had ended before any progress. hopeless: the job ends for that.
  int without_progress = 0;
  bool hopeless = false;
};
/// The workers have made progress: the step that one of them has told. Empty: it has no number.
struct ProgressMade {
  std::optional<std::int64_t> step = {};
};
/// Nodes of the job go at `deadline`, and the workers have been told. RestartOrdered or JobEnded
/// follows. The last one counts.
struct JobNoticed {
  Instant deadline{};
};
/// All workers of this node have answered the notice: they need no more time.
struct NoticeAnswered {};
struct WorkerStarted {
  LocalRank rank;
};
struct WorkerStartFailed {
  LocalRank rank;
  std::string reason;
};
struct WorkerEnded {
  LocalRank rank;
  WorkerExit exit;
  /// It had answered a notice of the job. If it has ended with 0, its work is not done.
  bool had_answered = false;
  /// It had answered a notice of another rank that has not reached this node yet.
  bool had_answered_ahead = false;
  /// muster has ended it because it stood still: one of its file timers ran out.
  bool timed_out = false;
};
/// The answer to KillEverything.
struct EverythingGone {
  bool complete = true;  // False: a process could not be killed.
};
/// The worker has been idle for the hang timeout, and its stacks have been written.
struct WorkerHung {
  LocalRank rank;
};
struct SignalArrived {
  int number = 0;
  bool is_own = false;  // muster stops the job by itself: the next signal counts as the first one.
  std::string reason = {};  // Why muster does so: the other nodes are told.
  int for_workers = 0;      // Workers get this signal in its place; 0: the same signal.
};
struct TimePassed {};

using SupervisorEvent =
    std::variant<RendezvousCompleted, RendezvousFailed, RestartOrdered, JobEnded, JobNoticed,
                 NoticeAnswered, ProgressMade, WorkerStarted, WorkerStartFailed, WorkerEnded,
                 WorkerHung, EverythingGone, SignalArrived, TimePassed>;

// --- actions -----------------------------------------------------------------------------------

/// Join the rendezvous again. The agent joins it for the first time by itself, when it is ready.
struct JoinRendezvous {};
/// JoinRendezvous follows after this time (--restart-policy).
struct WaitToJoin {
  Duration wait{};
};
/// Start all workers, local rank 0 first.
struct StartWorkers {
  int restart_count = 0;
};
/// Send the signal to the process group of each worker that is alive.
struct SignalWorkers {
  int number = 0;
};
/// Send the signal to one worker that hangs. The worker's end then counts as its failure.
struct EndWorker {
  LocalRank rank;
  int number = 0;
};
/// Kill the workers that live, give what the attempt has left this time to end, kill the rest, and
/// answer with EverythingGone. A second one before the answer can only shorten that time.
struct KillEverything {
  LeftoverTimes times{};
};
struct AnnounceFailure {
  LocalRank rank;
  WorkerExit exit;
  int restarts_left = 0;
  bool hung = false;  // muster has ended the worker because it hung.
};
/// No process of the job is alive on this node, and none will be started again: tell the other
/// nodes, and answer with JobEnded.
struct ReportEnd {
  bool succeeded = true;
  std::string reason;  // What failed, unless the other nodes were already told.
};
/// This node leaves for good, because of a signal. No event answers this action.
struct LeaveRendezvous {};

/// Always the last action.
struct Finish {
  enum class Why {
    Succeeded,
    WorkerFailed,  // A worker failed, and no restart was left.
    StartFailed,   // A worker could not be started: a restart would not help.
    RendezvousFailed,
    JobFailed,  // The job failed for good on another node.
    Preempted,  // The job, or this node's part in it, was stopped for a notice: nodes of it go.
    Signalled,  // `signal` ended the job; `started`: workers had been started before.
  };
  Why why = Why::Succeeded;
  int signal = 0;
  bool started = false;
  /// The cause, for StartFailed, RendezvousFailed, JobFailed, Preempted. In the other cases a
  /// further problem, or empty.
  std::string reason;
  /// The last attempts that ended before any progress, of this node or of the job.
  int without_progress = 0;
  bool hopeless = false;  // The job ends because of them (--restart-policy).
};

using SupervisorAction =
    std::variant<JoinRendezvous, WaitToJoin, StartWorkers, SignalWorkers, EndWorker, KillEverything,
                 AnnounceFailure, ReportEnd, LeaveRendezvous, Finish>;
using SupervisorActions = std::vector<SupervisorAction>;

struct SupervisorSettings {
  int local_world_size = 1;
  int max_restarts = 0;
  RestartPolicy restart_policy = {};
  bool has_progress_file = false;
  Duration stop_timeout = std::chrono::seconds(30);      // From the first signal to SIGKILL.
  Duration leftover_timeout = std::chrono::seconds(30);  // After success, for what is left.
  /// Not with --spare: a node that never had workers has not succeeded with the job. It may have
  /// met another job of the same run id.
  bool must_run = false;
};

SupervisorSettings supervisor_settings(const AgentOptions& options);

class Supervisor {
 public:
  explicit Supervisor(SupervisorSettings settings);

  /// Handles one event. `now` must not go backwards between calls.
  SupervisorActions step(const SupervisorEvent& event, Instant now);

  /// When step(TimePassed) must be called next. Empty if only another event can change the state.
  std::optional<Instant> next_deadline() const { return deadline_; }

  /// The restarts used so far, counted by the job or by this node: TORCHELASTIC_RESTART_COUNT.
  int restart_count() const { return restarts_; }
  bool finished() const { return state_ == State::Done; }

  enum class State {
    Joining,   // In the rendezvous, or before it; no worker is alive.
    Starting,  // StartWorkers was sent; the result of some starts is not known yet.
    Running,   // All workers were started; none has failed.
    Saved,     // All workers have ended for a notice of the job. Waits for what follows.
    Due,       // The round has ended for a notice. The stop waits for the deadline that the workers
               // were told, which is later than the host's by the message's time.
    Stopping,  // The workers were signalled to end, and have time until the deadline.
    Killing,   // No worker may live any more: what is left ends by itself, or is killed.
    Leaving,   // No process is alive, and the end was reported. Waits for JobEnded.
    Done,
  };
  State state() const { return state_; }

 private:
  /// The state of one worker of this attempt. Asked: its start has not been answered yet. Saved: it
  /// has ended with 0 after its answer to a notice.
  enum class Slot { Asked, Alive, Succeeded, Saved, Failed };
  /// What follows when no process of this attempt is alive any more.
  enum class Next { Restart, Finish };

  SupervisorActions on(const RendezvousCompleted& event, Instant now);
  SupervisorActions on(const RendezvousFailed& event, Instant now);
  SupervisorActions on(const RestartOrdered& event, Instant now);
  SupervisorActions on(const JobEnded& event, Instant now);
  SupervisorActions on(const JobNoticed& event, Instant now);
  SupervisorActions on(const NoticeAnswered& event, Instant now);
  SupervisorActions on(const ProgressMade& event, Instant now);
  SupervisorActions on(const WorkerStarted& event, Instant now);
  SupervisorActions on(const WorkerStartFailed& event, Instant now);
  SupervisorActions on(const WorkerEnded& event, Instant now);
  SupervisorActions on(const WorkerHung& event, Instant now);
  SupervisorActions on(const EverythingGone& event, Instant now);
  SupervisorActions on(const SignalArrived& event, Instant now);
  SupervisorActions on(const TimePassed& event, Instant now);

  SupervisorActions after_worker_change(Instant now);
  SupervisorActions after_success(Instant now);
  SupervisorActions on_signal(int number, bool again, Instant now);
  SupervisorActions end_hung_worker(Instant now);
  int restarts_left(bool hung) const;
  void decide_restart(Instant now);
  RestartBudgets budgets() const {
    return {.failures = settings_.max_restarts, .policy = settings_.restart_policy};
  }
  void need_round();
  void record_job_failure(const JobEnded& event);
  SupervisorActions stop(int signal, Instant now);
  SupervisorActions stop_for_notice(Instant now);
  SupervisorActions end_attempt();
  SupervisorActions kill();
  bool has_succeeded() const;
  SupervisorActions report_end();
  SupervisorActions finish();
  SupervisorActions end_saved(const std::string& reason);
  Duration wait_in_saved() const;
  bool has_workers() const;  // In Starting or Running, or in Saved: the attempt goes on.
  bool any(Slot slot) const;
  Slot& slot(LocalRank rank);

  SupervisorSettings settings_;
  State state_ = State::Joining;
  std::vector<Slot> slots_;
  Next next_ = Next::Finish;
  Finish outcome_;
  std::optional<Instant> deadline_;
  std::optional<LocalRank> hung_;  // Was sent hung_signal_, and has time until the deadline.
  int hung_signal_ = 0;
  std::optional<Instant> notice_;  // The deadline of this attempt's notice of the job.
  bool answered_ = false;          // All workers of this attempt have answered that notice.
  bool failed_by_hang_ = false;    // The worker that failed first was ended because it hung.
  RestartLedger ledger_;           // Of this node's own failures: unused while job_decides_.
  Duration wait_{};                // Before the next attempt.
  int restarts_ = 0;
  std::string rendezvous_error_;  // Empty: the rendezvous has not failed.
  bool job_decides_ = false;      // The rendezvous decides about restarts, not this node.
  bool job_over_ = false;         // No other node needs a report from this node any more.
  bool work_done_ = false;        // All workers had succeeded when a signal ended the job.
  bool signalled_ = false;        // A signal has arrived: the next one kills at once.
};

}  // namespace muster

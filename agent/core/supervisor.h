// One node's worker group: when to start it, stop it, restart it, and how it ended.
//
// Pure: no process, no clock, no log. The same events at the same instants always give the same
// actions. State table: docs/supervision.md. The rules are torchrun 2.13's (one failed worker fails
// the group; a failure costs a restart) except where docs/compatibility.md says otherwise.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/worker_end.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

// --- events ------------------------------------------------------------------------------------

struct Begun {};  // First of all, once.
/// Ranks are known: workers may start.
struct RendezvousCompleted {
  /// The rendezvous counts the failures of the whole job, and decides about restarts; this is its
  /// count. Nothing: this node counts its own, as torchrun does.
  std::optional<int> job_restarts;
};
struct RendezvousFailed {
  std::string reason;
};  // For good: retries are the session's.
/// Another node failed, left or wants to join: stop, and meet again. Costs no restart of ours.
struct RestartOrdered {};
/// It is over for everybody.
struct JobEnded {
  bool succeeded = true;
  std::string reason;  // If not: who failed, and how.
};
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
};
struct EverythingGone {
  bool complete = true;
};  // Answers KillEverything.
struct WorkerHung {
  LocalRank rank;
};  // It does nothing any more; its stacks are written.
struct SignalArrived {
  int number = 0;
};
struct TimePassed {};

using SupervisorEvent = std::variant<Begun, RendezvousCompleted, RendezvousFailed, RestartOrdered,
                                     JobEnded, WorkerStarted, WorkerStartFailed, WorkerEnded,
                                     WorkerHung, EverythingGone, SignalArrived, TimePassed>;

// --- actions -----------------------------------------------------------------------------------

struct JoinRendezvous {};
struct StartWorkers {
  int restart_count = 0;
};  // All of them, local rank 0 first.
struct SignalWorkers {
  int number = 0;
};  // To the process group of each that lives.
struct EndWorker {
  LocalRank rank;
  int number = 0;
};                         // By this signal: it hangs, and fails by that.
struct KillEverything {};  // And answer EverythingGone.
struct AnnounceFailure {
  LocalRank rank;
  WorkerExit exit;
  int restarts_left = 0;
};
/// Nothing lives here any more, and nothing will: tell the others, and answer JobEnded.
struct ReportEnd {
  bool succeeded = true;
  std::string what;  // Went wrong, as far as it is not told already.
};
/// This node goes, by a signal, and will not be back. Not answered.
struct LeaveRendezvous {};

/// The last action of all.
struct Finish {
  enum class Why {
    Succeeded,
    WorkerFailed,  // And no restart was left.
    StartFailed,   // A worker could not be started: a restart would not help.
    RendezvousFailed,
    JobFailed,  // Elsewhere, for good.
    Signalled,  // By `signal`; `started` tells whether there had been workers.
  };
  Why why = Why::Succeeded;
  int signal = 0;
  bool started = false;
  /// For StartFailed, RendezvousFailed and JobFailed; otherwise what else went wrong, or empty.
  std::string reason;
};

using SupervisorAction =
    std::variant<JoinRendezvous, StartWorkers, SignalWorkers, EndWorker, KillEverything,
                 AnnounceFailure, ReportEnd, LeaveRendezvous, Finish>;
using SupervisorActions = std::vector<SupervisorAction>;

struct SupervisorSettings {
  int local_world_size = 1;
  int max_restarts = 0;
  Duration stop_timeout = std::chrono::seconds(30);  // From asking workers to end to killing them.
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorSettings settings);

  /// Takes one event. `now` never goes backwards between calls.
  SupervisorActions step(const SupervisorEvent& event, Instant now);

  /// When step(TimePassed) is next needed; nothing if only an event can change anything.
  std::optional<Instant> next_deadline() const { return deadline_; }

  /// Restarts used so far, by the job or by this node: TORCHELASTIC_RESTART_COUNT.
  int restart_count() const { return restarts_; }
  bool finished() const { return state_ == State::Done; }

  enum class State {
    Idle,      // Nothing has begun.
    Joining,   // In the rendezvous; no worker lives.
    Starting,  // Workers were asked for; not all answers are in.
    Running,   // All were started; none has failed.
    Stopping,  // Workers were asked to end, and have until the deadline.
    Killing,   // Everything is being killed.
    Leaving,   // Nothing lives; the others are told, and may have something to finish first.
    Done,
  };
  State state() const { return state_; }

 private:
  enum class Slot { Asked, Alive, Succeeded, Failed };  // A worker of this attempt.
  /// What follows when nothing of this attempt lives any more.
  enum class Next { Restart, Finish };

  SupervisorActions on(const Begun& event, Instant now);
  SupervisorActions on(const RendezvousCompleted& event, Instant now);
  SupervisorActions on(const RendezvousFailed& event, Instant now);
  SupervisorActions on(const RestartOrdered& event, Instant now);
  SupervisorActions on(const JobEnded& event, Instant now);
  SupervisorActions on(const WorkerStarted& event, Instant now);
  SupervisorActions on(const WorkerStartFailed& event, Instant now);
  SupervisorActions on(const WorkerEnded& event, Instant now);
  SupervisorActions on(const WorkerHung& event, Instant now);
  SupervisorActions on(const EverythingGone& event, Instant now);
  SupervisorActions on(const SignalArrived& event, Instant now);
  SupervisorActions on(const TimePassed& event, Instant now);

  SupervisorActions after_worker_change(Instant now);
  SupervisorActions on_signal(int number, bool again, Instant now);
  SupervisorActions end_hung_worker(Instant now);
  void decide_restart();
  void note_job_failure(const JobEnded& event);
  SupervisorActions stop(int signal, Instant now);
  SupervisorActions kill();
  SupervisorActions conclude();
  SupervisorActions finish();
  bool any(Slot slot) const;
  Slot& slot(LocalRank rank);

  SupervisorSettings settings_;
  State state_ = State::Idle;
  std::vector<Slot> slots_;
  Next next_ = Next::Finish;
  Finish outcome_;
  std::optional<Instant> deadline_;
  std::optional<LocalRank> hung_;  // Told to end by hung_signal_; it has until the deadline.
  int hung_signal_ = 0;
  int restarts_ = 0;
  bool job_decides_ = false;      // About restarts.
  bool restart_ordered_ = false;  // While not all starts were answered.
  bool job_over_ = false;         // Nobody is to be told anything any more.
  bool work_done_ = false;        // All workers had succeeded when a signal ended the job.
  bool signalled_ = false;        // The next signal is the second: no more patience.
};

}  // namespace muster

// Signals the workers of this node, through the shim: to end when the group is stopped, to end one
// worker that hangs, and to kill every process of the job.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "agent/core/agent_options.h"
#include "agent/core/stop_lines.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_table.h"
#include "agent/io/shim_link.h"
#include "agent/io/worker_channel.h"

namespace muster {

class WorkerStop {
 public:
  WorkerStop(const AgentOptions& options, ShimLink& shim, WorkerTable& workers)
      : options_(options), shim_(shim), workers_(workers) {}

  /// The workers' promises and notices go through this channel. Null: there is none.
  void set_channel(WorkerChannel* channel) { channel_ = channel; }

  void begin_attempt();
  /// A signal has asked the job to end. Logs it, and notifies the workers if it is the first one
  /// that stops them.
  /// `kill_at`: when the workers that are being stopped already are killed.
  void on_signal(int number, Supervisor::State before, std::optional<Instant> kill_at);
  /// The round is over. Logs why. If it is planned, no node has failed: the workers are notified
  /// when they are stopped.
  void on_restart(const std::string& why, bool is_planned, Supervisor::State before);
  /// The job ends for a notice of which the workers know. They are notified when they are stopped,
  /// too: those that have promised to end by themselves get no signal before the stop's deadline.
  void on_preempted(const std::string& why, Supervisor::State before);
  /// The shim has signalled a worker: logs it in torchrun's words.
  void on_signalled(const ShimReport& report);

  /// `kill_at`: when the workers are killed.
  void signal_workers(const SignalWorkers& action, std::optional<Instant> kill_at);
  /// For a worker that had promised to end by itself, and lives at the notice's deadline.
  void signal_overdue(LocalRank rank) { signal(rank, Duration{}); }
  void end_worker(const EndWorker& action);
  void kill_everything(const KillEverything& action);
  /// The shim has passed on a signal of --signals-to-forward, or has not.
  void on_forwarded(const ShimReport& report);
  /// Names what an attempt has left, and what happens to it.
  void on_leftovers(const ShimReport& report);

 private:
  void signal(LocalRank rank, Duration until_group);
  void notify_of_stop();

  const AgentOptions& options_;
  ShimLink& shim_;
  WorkerTable& workers_;
  WorkerChannel* channel_ = nullptr;
  /// For the workers when they are stopped. Its deadline is not known before.
  std::optional<WorkerNotice> stop_notice_;
  StopLines lines_;
  int alive_ = 0;                           // The workers that were alive when the stop began.
  int signals_ = 0;                         // The signals that stopped workers, so far.
  int number_ = 0;                          // The signal of the current stop.
  std::map<pid_t, std::string> leftovers_;  // The commands of this attempt's, by pid.
};

}  // namespace muster

// The workers that the shim has started and not reaped yet: starts, signals and ends.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "agent/posix/lost_agent.h"
#include "agent/posix/report_queue.h"
#include "agent/posix/rescue_output.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/shim_worker.h"
#include "agent/posix/spawn.h"
#include "agent/posix/warm_starts.h"
#include "agent/posix/worker_cgroup.h"
#include "base/system/owned_fd.h"
#include "base/time.h"

namespace muster {

/// Each worker in here is alive, or has ended and is not reaped. So no other process can have its
/// pid, and it is safe to signal that pid and its group.
class ShimWorkers {
 public:
  struct Context {
    const WorkerSetup& setup;
    const std::optional<WarmSetup>& warm;
    WorkerCgroup& cgroup;
    ReportQueue& outbox;
    /// Has the shim's loop call on_status() or reap the worker when the descriptor is readable.
    std::function<void(int fd)> watch;
    /// Before the descriptor is closed: while another process has it, too, epoll would go on
    /// reporting its old number.
    std::function<void(int fd)> unwatch;
  };
  explicit ShimWorkers(Context context);

  void start(const ShimRequest& request, std::vector<OwnedFd> fds);
  /// Reports the starts of which the result is known. The others are reported later.
  void finish_starts();
  /// True if `fd` tells how a start ended, or is of the zygote; a start is then reported.
  bool on_status(int fd);

  /// Signals the groups of all workers, or of worker `only`, and reports each signal. A worker that
  /// handles the signal gets it alone at first: data loaders and other helpers that died at once
  /// would take from it what it wants to save. The rest of its group gets the signal when the
  /// worker ends, or after `until_group`; zero: at once.
  void signal(int number, Duration until_group, std::optional<int> only = std::nullopt);
  /// Signals the groups that were spared until now.
  void signal_spared_groups(Instant now);
  /// How long the loop may wait before it calls signal_spared_groups(). Empty: no group is spared.
  std::optional<Duration> until_spared_check() const;
  /// A child has ended, and is not reaped: if it is a worker, its group is still its own.
  void before_reap(pid_t pid);
  /// Sends SIGKILL to the processes of all workers, and not to what they have started. Reports it.
  void kill_processes();
  /// Signals only the worker's process, and reports no signal: the worker then counts as failed by
  /// itself, not as a victim.
  void signal_process(int number_of_worker, int signal);
  /// Passes on a signal that ends no worker: to each worker that catches, ignores or blocks it, and
  /// else to the processes in its session that do. Returns how many workers have got it.
  int forward(int number);
  /// For SIGSTOP and SIGCONT, and for SIGKILLs after the reported one.
  void signal_groups_unreported(int number);
  /// Gives the workers' own terminals the size of muster's.
  void resize_terminals();
  /// As in a shell's job: SIGSTOP, which no worker can catch, then SIGCONT.
  void stop_or_continue(bool stops);

  /// False if the child that was reaped is no worker. Else its end is reported, and `readers` gets
  /// the ends of its pipes.
  bool on_end(const siginfo_t& info, std::vector<OutputReader>& readers);
  /// The reading ends of the pipes of all workers.
  std::vector<OutputReader> take_readers();

  /// The pid of the zygote, which is no worker; -1: there is none.
  pid_t zygote() const { return warm_ ? warm_->zygote() : -1; }
  bool on_zygote_end(const siginfo_t& info) { return warm_ && warm_->on_end(info); }
  /// Looks at the zygote's deadline. How long the loop may wait before the next call; empty: there
  /// is no deadline.
  std::optional<Duration> check_zygote(Instant now);
  /// The job is over: kills the zygote.
  void stop_zygote();

  bool empty() const { return workers_.empty() && !(warm_ && warm_->has_waiting()); }
  /// Whether a worker of this attempt has begun this session. It may have ended.
  bool has_session(pid_t session) const { return sessions_.contains(session); }
  /// The attempt is over, and nothing is left of it.
  void forget_sessions() { sessions_.clear(); }
  const WorkerRecords& records() const { return records_; }

 private:
  void start_cold(const ShimRequest& request, std::vector<OwnedFd> fds);
  void adopt(WarmWorker started);
  void report_start(pid_t pid, ShimWorker& worker);
  void finish_start(pid_t pid, ShimWorker& worker);
  enum class To { Group, Process };
  void signal_worker(pid_t pid, ShimWorker& worker, int number, To to);
  bool spare_group(pid_t pid, ShimWorker& worker, int number, Duration until_group);

  Context context_;
  WorkerRecords records_;
  std::map<pid_t, ShimWorker> workers_;
  std::map<int, pid_t> starting_;   // From ShimWorker::status to the worker's pid.
  std::set<pid_t> sessions_;        // Of this attempt: the workers' pids.
  bool job_is_stopped_ = false;     // By ctrl-Z.
  std::optional<WarmStarts> warm_;  // --warm
};

}  // namespace muster

// The running workers of this node, and the observers that are notified when a worker starts or
// ends.
//
// Pure. There is one table, so that no observer keeps a copy that could differ from it.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "agent/core/supervisor.h"
#include "base/ids.h"

namespace muster {

struct RunningWorker {
  LocalRank rank;
  int pid = 0;
};

/// An observer overrides the functions for the events that it needs.
class WorkerObserver {
 public:
  virtual ~WorkerObserver() = default;
  /// No worker of an earlier attempt is alive, and no worker of the new attempt has been started.
  virtual void attempt_begins() {}
  /// The worker is already in the table.
  virtual void worker_started(const RunningWorker&) {}
  /// The worker is no longer in the table.
  virtual void worker_ended(const RunningWorker&, const WorkerExit&) {}
  /// The workers are being stopped. worker_ended() still follows for each of them.
  virtual void attempt_ends() {}
};

class WorkerTable {
 public:
  /// Adds an observer, which must outlive the table's last event. Observers are notified in the
  /// order of these calls.
  void observe(WorkerObserver& observer) { observers_.push_back(&observer); }

  void attempt_begins();
  void started(LocalRank rank, int pid);
  /// Does nothing if the worker is not in the table.
  void ended(LocalRank rank, const WorkerExit& exit);
  void attempt_ends();

  const std::map<LocalRank, int>& running() const { return running_; }
  /// 0 if the worker is not running.
  int pid_of(LocalRank rank) const;
  std::set<int> pids() const;

 private:
  std::map<LocalRank, int> running_;
  std::vector<WorkerObserver*> observers_;
};

}  // namespace muster

// The workers of this node that run now, and those who are told when one starts or ends.
//
// Pure. One table, so that nobody who watches workers keeps a copy that could differ from it.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "agent/core/supervisor.h"
#include "rendezvous/core/ids.h"

namespace muster {

struct RunningWorker {
  LocalRank rank;
  int pid = 0;
};

/// Overrides what it wants to hear.
class WorkerObserver {
 public:
  virtual ~WorkerObserver() = default;
  /// No worker of an earlier attempt lives, none of the new one has been started.
  virtual void attempt_begins() {}
  /// The table has it.
  virtual void worker_started(const RunningWorker&) {}
  /// The table does not have it any more.
  virtual void worker_ended(const RunningWorker&, const WorkerExit&) {}
  /// The workers are being stopped; their ends are still told.
  virtual void attempt_ends() {}
};

class WorkerTable {
 public:
  /// From now on: in the order of these calls.
  void observe(WorkerObserver& observer) { observers_.push_back(&observer); }

  void attempt_begins();
  void started(LocalRank rank, int pid);
  /// Nothing happens if it is not in the table.
  void ended(LocalRank rank, const WorkerExit& exit);
  void attempt_ends();

  const std::map<LocalRank, int>& running() const { return running_; }
  /// Of one that runs; else 0.
  int pid_of(LocalRank rank) const;
  std::set<int> pids() const;

 private:
  std::map<LocalRank, int> running_;
  std::vector<WorkerObserver*> observers_;
};

}  // namespace muster

#include "agent/core/worker_table.h"

namespace muster {

void WorkerTable::attempt_begins() {
  running_.clear();
  for (WorkerObserver* observer : observers_)
    observer->attempt_begins();
}

void WorkerTable::started(LocalRank rank, int pid) {
  running_[rank] = pid;
  for (WorkerObserver* observer : observers_)
    observer->worker_started({rank, pid});
}

void WorkerTable::ended(LocalRank rank, const WorkerExit& exit) {
  const auto found = running_.find(rank);
  if (found == running_.end()) return;
  const RunningWorker worker{rank, found->second};
  running_.erase(found);
  for (WorkerObserver* observer : observers_)
    observer->worker_ended(worker, exit);
}

void WorkerTable::attempt_ends() {
  for (WorkerObserver* observer : observers_)
    observer->attempt_ends();
}

int WorkerTable::pid_of(LocalRank rank) const {
  const auto found = running_.find(rank);
  return found == running_.end() ? 0 : found->second;
}

std::set<int> WorkerTable::pids() const {
  std::set<int> pids;
  for (const auto& [rank, pid] : running_)
    pids.insert(pid);
  return pids;
}

}  // namespace muster

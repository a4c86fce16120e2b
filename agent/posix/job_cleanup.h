// Kills the processes of a job that are left, also if one of muster's own processes was killed.

#pragma once

#include <sys/types.h>

#include <set>

#include "agent/posix/process_scan.h"
#include "agent/posix/worker_cgroup.h"

namespace muster {

/// Whether the calling process has a child that is not in `spared`. Zombies count. True also if
/// that cannot be found out now.
bool has_children_but(const std::set<pid_t>& spared);

/// Kills the descendants of the calling process in rounds; the caller reaps between them. Each
/// round first kills the workers' cgroup, if there is one, with all processes in it. The first
/// rounds kill each process that they find. If processes fork faster than a round finds them, the
/// later rounds stop all processes before they kill one: a stopped process makes no more children.
class DescendantKiller {
 public:
  explicit DescendantKiller(const WorkerCgroup& cgroup) : cgroup_(cgroup) {}
  /// Starts a new series of rounds: the first ones do not stop processes.
  void begin() { rounds_ = 0; }
  /// Runs one round. Returns the pid of a process that it found, or 0.
  pid_t round(const std::set<pid_t>& spared);

 private:
  const WorkerCgroup& cgroup_;
  int rounds_ = 0;
};

/// Kills and reaps all descendants of the calling process, except `spared` children and their
/// descendants. Misses none, because the caller is a subreaper. SIGCHLD must be blocked. Takes a
/// limited time: a process in uninterruptible I/O may stay. Removes `cgroup`, too.
void kill_descendants(const std::set<pid_t>& spared, const WorkerCgroup& cgroup);

/// The last resort if front and shim, the ancestors of the workers, were killed together. Kills
/// the processes in `cgroup` and those that processes_of_job() finds, until it finds none. Takes a
/// limited time, as kill_descendants() does. Removes `cgroup`.
void kill_job(const JobSessions& sessions, const EnvironmentMark& mark, const WorkerCgroup& cgroup);

}  // namespace muster

// Kills what muster's processes leave when one of them is killed itself.

#pragma once

#include <sys/types.h>

#include <set>

#include "agent/posix/process_scan.h"
#include "agent/posix/worker_cgroup.h"

namespace muster {

/// Whether the calling process has a child that is not `spared`, a zombie included.
bool has_children_but(const std::set<pid_t>& spared);

/// Kills what descends from the calling process, in rounds, while the caller reaps. The workers'
/// cgroup, if there is one, ends at once with all that is in it. The first rounds kill at once.
/// Processes that fork faster than they are found are stopped then, all of them, before one is
/// killed: who stands still has no further children.
class DescendantKiller {
 public:
  explicit DescendantKiller(const WorkerCgroup& cgroup) : cgroup_(cgroup) {}
  /// What follows is another job to do.
  void begin() { rounds_ = 0; }
  /// One round. Returns the pid of one that was there, or 0.
  pid_t round(const std::set<pid_t>& spared);

 private:
  const WorkerCgroup& cgroup_;
  int rounds_ = 0;
};

/// Kills and reaps whatever descends from the calling process, but not `spared` children nor what
/// descends from those. Complete, as the caller is a subreaper. SIGCHLD must be blocked. Bounded:
/// what is in uninterruptible I/O may stay. `cgroup` is removed, too.
void kill_descendants(const std::set<pid_t>& spared, const WorkerCgroup& cgroup);

/// The last resort, when front and shim, the ancestors of the workers, were killed together: kills
/// what is in `cgroup`, and what processes_of_job() finds until that is nothing. Bounded as above.
void kill_job(const JobSessions& sessions, const EnvironmentMark& mark, const WorkerCgroup& cgroup);

}  // namespace muster

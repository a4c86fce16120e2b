// The shim: the process that owns the workers. It decides nothing.
//
// The shim starts the workers (spawn.h), reaps them, and passes signals on to the agent: those that
// the front (front.h) has received, and those that a worker has sent to its parent. It kills all
// descendants when the agent asks for that, or when the agent or the front is gone.
// The shim has no network and no log, and allocates little, so that it does not fail. All complex
// code is in the agent, a child process of the shim with its own session (docs/architecture.md).
// The shim outlives an agent that dies or hangs: it then stops the workers in order, and has the
// reports written.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/earlier_attempts.h"
#include "agent/core/end_cause.h"
#include "agent/core/leftovers.h"
#include "agent/core/worker_end.h"
#include "agent/posix/spawn.h"
#include "agent/posix/warm_starts.h"

namespace muster {

/// What is known when one of muster's processes is gone before the end of the job.
struct LostProcess {
  EndCause cause;                  // "the agent (pid 7) was killed by signal 9 (Killed)"
  std::vector<WorkerEnd> workers;  // The workers of the last attempt; some may still have lived.
  EarlierAttempts earlier;         // The first failure of each attempt before.
};

struct ShimSetup {
  pid_t front = -1;
  pid_t agent = -1;
  int agent_socket = -1;
  int front_socket = -1;
  WorkerSetup workers;
  std::optional<WarmSetup> warm;  // --warm
  std::string cgroup;             // The name of the workers' cgroup.
  sigset_t watched{};             // Those that the shim reads from a descriptor; they are blocked.
  std::vector<int> requests;      // See SplitOptions.
  std::vector<int> forwarded;     // See SplitOptions.
  std::chrono::milliseconds shutdown_timeout{0};
  /// After the loss of the agent: see ShimWorkers::signal().
  std::chrono::milliseconds until_group{0};
  LeftoverTimes clean_up;  // For what the workers of a lost agent leave.
  /// Writes the reports that were asked for. Has a limit.
  std::function<void(const LostProcess&)> report_lost_process;
  /// Removes the job's files, for an agent that has not done so. Has a limit.
  std::function<void()> remove_files;
};

/// Runs in a child of the front that is a subreaper and has blocked `watched`. Returns when the job
/// is over, no process of it is left, and the front has the outcome.
void run_shim(const ShimSetup& setup);

}  // namespace muster

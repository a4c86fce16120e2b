// The shim: owns the workers and decides nothing.
//
// It starts them (spawn.h), reaps them, passes signals on to the agent, and kills to the last
// descendant when it is told to, or when the agent or the front (front.h) is gone. It has no
// network and no log, and allocates little, so that it does not fail: what is complicated is in the
// agent, a child process of it in a session of its own (docs/architecture.md). The shim outlives an
// agent that dies or hangs: it stops the workers in order then, and has the reports written.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "agent/core/worker_end.h"
#include "agent/posix/spawn.h"

namespace muster {

/// What the shim knows when the agent is gone before the job was over.
struct LostAgent {
  std::string how;                 // "the agent (pid 7) was killed by signal 9 (Killed)"
  std::vector<WorkerEnd> workers;  // Of the last attempt; some may have lived.
};

struct ShimSetup {
  pid_t agent = -1;
  int agent_socket = -1;
  int front_socket = -1;
  WorkerSetup workers;
  int request_signal = 0;  // See SplitOptions.
  std::chrono::milliseconds shutdown_timeout{0};
  std::function<void(const LostAgent&)> report_lost_agent;
};

/// Runs in the child of the front, a subreaper that has blocked SIGCHLD, until the job is over and
/// nothing of it is left, and has told the front how to end.
void run_shim(const ShimSetup& setup);

}  // namespace muster

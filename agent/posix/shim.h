// The shim: owns the workers and decides nothing.
//
// It starts them (spawn.h), reaps them, passes signals on to the agent, and kills to the last
// descendant when it is told to, or when the agent or the front (front.h) is gone. It has no
// network, no log and no thread, and allocates little, so that it does not fail: what is
// complicated is in the agent, a child process of it in a session of its own
// (docs/architecture.md).
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent/posix/spawn.h"

namespace muster {

struct ShimSetup {
  pid_t agent = -1;
  int agent_socket = -1;
  int front_socket = -1;
  SignalState worker_signals;
  rlimit worker_files{};   // Their limit of open files.
  int request_signal = 0;  // See SplitOptions.
};

/// Runs in the child of the front, a subreaper that has blocked SIGCHLD, until the job is over and
/// nothing of it is left, and has told the front how to end.
void run_shim(const ShimSetup& setup);

}  // namespace muster

// A worker, from the agent's request to a process.
#pragma once

#include <vector>

#include "agent/posix/rescue_output.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/spawn.h"

namespace muster {

/// A start that has begun.
struct BegunWorker {
  BegunSpawn spawn;
  /// One for each pipe among the worker's descriptors. Empty if there is no child.
  std::vector<OutputReader> readers;
};

/// Begins the start that `request` asks for; `fds` came with it.
/// `cgroup`: SpawnOptions::cgroup
BegunWorker begin_worker(const ShimRequest& request, const std::vector<OwnedFd>& fds,
                         const WorkerSetup& setup, int cgroup);

}  // namespace muster

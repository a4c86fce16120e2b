// Makes a worker process from the agent's request.
#pragma once

#include <vector>

#include "agent/posix/rescue_output.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/spawn.h"

namespace muster {

/// A worker whose start has begun.
struct BegunWorker {
  BegunSpawn spawn;
  /// One reader for each pipe among the worker's descriptors. Empty if there is no child.
  std::vector<OutputReader> readers;
};

/// Begins the start that `request` asks for. `fds` are the descriptors of the request's packet.
/// `cgroup` is SpawnOptions::cgroup.
BegunWorker begin_worker(const ShimRequest& request, std::vector<OwnedFd> fds,
                         const WorkerSetup& setup, int cgroup);

/// The readers of a worker that was started otherwise, from the same request. Moves the handles out
/// of `fds`.
std::vector<OutputReader> worker_readers(const ShimRequest& request, std::vector<OwnedFd>& fds,
                                         const PackedCommand& command);

}  // namespace muster

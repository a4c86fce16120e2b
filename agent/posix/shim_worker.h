// A worker as the shim knows it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agent/core/watched_time.h"
#include "agent/posix/rescue_output.h"
#include "base/system/owned_fd.h"

namespace muster {

/// A signal that a worker has got, and the other processes of its group have not got yet.
struct SparedGroup {
  int number = 0;
  Duration limit{};  // Then they get it, unless the worker ends before.
  WatchedWait wait;
};

/// The worker is alive, or has ended and is not reaped. The shim knows it by its pid.
struct ShimWorker {
  int number = 0;  // The local rank: names the worker in requests and reports.
  OwnedFd pidfd;
  OwnedFd status;                      // BegunSpawn::status; closed once the result is known.
  std::shared_ptr<const void> memory;  // BegunSpawn::memory, until the program runs.
  int signal_after_start = 0;          // The signal to send when the program runs; 0: none.
  std::optional<SparedGroup> spared_group;
  bool has_failed = false;            // The program could not be executed: the child is ending.
  std::vector<OutputReader> readers;  // Keep the worker's pipes open if the agent dies.
};

}  // namespace muster

// The shim: the process that the user started. It owns the workers and decides nothing.
//
// It starts them (spawn.h), reaps them, passes signals on to the agent, and kills to the last
// descendant when it is told to, or when the agent is gone. It has no network, no log and no
// thread, and allocates little, so that it does not fail: what is complicated is in the agent,
// a child process of it in a session of its own (docs/architecture.md).
#pragma once

#include <functional>
#include <vector>

#include "agent/posix/spawn.h"

namespace muster {

struct ShimOptions {
  /// Signals that are reported to the agent instead of ending the shim. SIGHUP is left alone when
  /// it is ignored already: `nohup` is meant.
  std::vector<int> signals;
  /// One more that is reported, if it is not ignored already: it asks for something and is no wish
  /// to end, however often it comes. 0: none.
  int request_signal = 0;
};

/// Splits the calling process, which must have one thread: `agent_main` runs in a child with its
/// end of the socket (shim_protocol.h) and gives the child's exit status; the caller becomes the
/// shim. Returns in the shim only, with the exit status of the whole.
int split_into_shim_and_agent(const ShimOptions& options,
                              const std::function<int(int socket)>& agent_main);

}  // namespace muster

// One program becomes three processes: the front, the shim and the agent (docs/supervision.md).

#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "agent/posix/shim.h"

namespace muster {

struct SplitOptions {
  /// Signals that are reported to the agent instead of ending muster. SIGHUP is left alone when it
  /// is ignored already: `nohup` is meant.
  std::vector<int> signals;
  /// One more that is reported, if it is not ignored already: it asks for something and is no wish
  /// to end, however often it comes. 0: none.
  int request_signal = 0;
  /// What workers have from SIGTERM to SIGKILL when the agent is lost (--shutdown-timeout).
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// Writes the reports that the agent cannot write any more, and removes the files that it has
  /// left. Called in child processes, which are not waited for without bound.
  std::function<void(const LostAgent&)> report_lost_agent = [](const LostAgent&) {};
  std::function<void()> tidy = [] {};
};

/// Splits the calling process, which must have one thread. It becomes the front (front.h), with a
/// shim (shim.h) as its child; `agent_main` runs in a child of that, with its end of the socket
/// (shim_protocol.h), and gives its exit status. Returns in the front only, with the exit status of
/// the whole.
int split_into_front_shim_and_agent(const SplitOptions& options,
                                    const std::function<int(int socket)>& agent_main);

}  // namespace muster

// One program becomes three processes: the front, the shim and the agent (docs/supervision.md).

#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "agent/posix/shim.h"

namespace muster {

struct SplitOptions {
  /// Signals that the front reports to the agent instead of ending muster. SIGHUP stays ignored if
  /// it is ignored already, as under `nohup`. SIGINT is reported in any case; if it is not listed,
  /// it stays ignored, too.
  std::vector<int> signals;
  /// One more signal that the front reports, unless it is ignored already. It asks the agent for
  /// something and never ends the job, however often it comes. 0: none.
  int request_signal = 0;
  /// The time between SIGTERM and SIGKILL for workers of a lost agent (--shutdown-timeout).
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// These replace a lost agent: the first writes its reports, the second removes its files. Each
  /// runs in a child process, for which muster waits for a limited time.
  std::function<void(const LostAgent&)> report_lost_agent = [](const LostAgent&) {};
  std::function<void()> remove_files = [] {};
};

/// Splits the calling process, which must have one thread. The caller becomes the front (front.h),
/// with a shim (shim.h) as its child. `agent_main` runs in a child of the shim: it gets its end of
/// the socket (shim_protocol.h), and returns the agent's exit status. This function returns only in
/// the front, with muster's exit status.
int split_into_front_shim_and_agent(const SplitOptions& options,
                                    const std::function<int(int socket)>& agent_main);

}  // namespace muster

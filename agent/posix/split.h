// One program becomes three processes: the front, the shim and the agent (docs/supervision.md).

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/leftovers.h"
#include "agent/posix/shim.h"

namespace muster {

struct SplitOptions {
  /// Signals that the front reports to the agent instead of ending muster. SIGHUP stays ignored if
  /// it is ignored already, as under `nohup`. SIGINT is reported in any case; if it is not listed,
  /// it stays ignored, too.
  std::vector<int> signals;
  /// More signals that the front reports. They tell the agent something, or ask it for something,
  /// and never end the job, however often they come.
  std::vector<int> requests = {};
  /// Signals that the front and the shim read and pass on to the workers. They do not end the job.
  /// None of them is in `signals` or in `requests`.
  std::vector<int> forwarded = {};
  /// Workers start with these signals ignored. A program that handles one sets its handler itself.
  std::vector<int> ignored_by_workers = {};
  std::optional<WarmSetup> warm = {};  // --warm
  /// The name of the workers' cgroup (worker_cgroup.h).
  std::string cgroup;
  /// The time between SIGTERM and SIGKILL for workers of a lost agent (--shutdown-timeout).
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// How long the groups of such workers are spared if they handle SIGTERM (shim_workers.h).
  std::chrono::milliseconds until_group{0};
  /// The time for what these workers leave.
  LeftoverTimes clean_up = kCleanUp;
  /// For a job that has lost one of muster's processes: the first writes the reports, the second
  /// removes the files. Each runs in a child process, for which muster waits for a limited time.
  std::function<void(const LostProcess&)> report_lost_process = [](const LostProcess&) {};
  std::function<void()> remove_files = [] {};
};

/// Splits the calling process, which must have one thread. The caller becomes the front (front.h),
/// with a shim (shim.h) as its child. `agent_main` runs in a child of the shim: it gets its end of
/// the socket (shim_protocol.h), and returns the agent's exit status. This function returns only in
/// the front, with muster's exit status.
int split_into_front_shim_and_agent(const SplitOptions& options,
                                    const std::function<int(int socket)>& agent_main);

}  // namespace muster

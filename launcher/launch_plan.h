// Flags and environment -> what the agent is told to do, or what is wrong with them.
//
// Pure: what must be asked of the machine comes in as functions, called only where needed. The
// order of the checks is torchrun's, so that the same one of several errors is reported.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/numa_plan.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"
#include "launcher/python_command.h"

namespace muster {

/// For --numa-binding.
struct NumaFacts {
  NumaTopology topology;
  std::vector<int> node_of_gpu;  // For each that CUDA shows, in its order.
};

/// What the plan needs to know of this machine.
struct NodeFacts {
  std::function<int()> cpus;  // That this process may use.
  std::function<int()> gpus;  // That CUDA would show, with CUDA_VISIBLE_DEVICES.
  std::function<int()> xpus;  // That Level Zero would show, with ZE_AFFINITY_MASK.
  std::function<std::string()> new_run_id;
  IsExecutable is_executable;
  std::string argv0;  // As muster was called.
  /// With CUDA_VISIBLE_DEVICES as the workers will have it; null: not set.
  std::function<Checked<NumaFacts>(const std::string* cuda_visible_devices)> numa;
  /// Why Python could not run this file or directory; nothing if it can be tried.
  std::function<std::optional<std::string>(const std::string& script)> script_problem;
};

struct LaunchPlan {
  AgentOptions agent;
  std::vector<std::string> warnings;  // About flags; with --strict they are errors.
  std::vector<std::string> notices;   // Good to know; never errors.
};

Checked<LaunchPlan> plan_launch(const Flags& flags, const Environment& environment,
                                const NodeFacts& facts);

/// The file that the launcher's own parent wants its failure in; empty: none. As
/// `python -m torch.distributed.launch`, it writes none.
std::string own_error_file(const Flags& flags, const Environment& environment);

}  // namespace muster

// Turns flags and environment into the options of the agent, or into an error.
//
// Pure: queries of the machine come in as functions and are called only where needed. The checks
// run in torchrun's order, so that muster reports the same one of several errors.
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

/// The facts that --numa-binding needs.
struct NumaFacts {
  NumaTopology topology;
  std::vector<int> node_of_device;  // The NUMA node of each device that the workers see.
  bool may_have_parts = false;      // Several workers may share a device, each with a part of it.
};

/// The queries of this machine that the plan needs.
struct NodeFacts {
  std::function<int()> cpus;  // The number of CPUs that this process may use.
  /// The CPUs whose time the cgroup gives this process, such as 2.5; nothing: it has no quota.
  std::function<std::optional<double>()> cpu_quota;
  std::function<int()> gpus;  // The number of GPUs that CUDA shows, with CUDA_VISIBLE_DEVICES.
  std::function<int()> xpus;  // The number that Level Zero shows, with ZE_AFFINITY_MASK.
  std::function<std::string()> new_run_id;
  FirstOfPaths first_executable;
  FirstOfPaths first_existing;  // Also a link that leads nowhere.
  std::string argv0;            // The name that muster was called with.
  std::function<std::string()> host_name;
  /// The text of a small file, such as a scheduler's list of hosts; nothing if it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file;
  /// `variables`: those that choose the devices, as the workers will have them.
  std::function<Checked<NumaFacts>(const Environment& variables)> numa;
  /// The reason why Python cannot run this file or directory; nothing if it may be able to.
  std::function<std::optional<std::string>(const std::string& script)> script_problem;
};

struct LaunchPlan {
  AgentOptions agent;
  std::vector<std::string> warnings;  // About flags. With --strict they are errors.
  std::vector<std::string> notices;   // Information that is never an error.
  std::vector<std::string> cluster;   // "--nnodes=2  (SLURM_NNODES)": what --cluster has chosen.
};

Checked<LaunchPlan> plan_launch(const Flags& flags, const Environment& environment,
                                const NodeFacts& facts);

/// The error file that the launcher's own parent has requested; empty: none. muster-launch writes
/// none, as `python -m torch.distributed.launch` does.
std::string own_error_file(const Flags& flags, const Environment& environment);

}  // namespace muster

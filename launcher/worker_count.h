// How many workers --nproc-per-node means on this node, on which devices, and for --numa-binding on
// which CPUs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/launch_plan.h"

namespace muster {

struct WorkerCountRequest {
  std::string_view text;
  std::string flag;                         // How to name it in an error.
  const std::string* cuda_visible_devices;  // The environment's; null: not set.
  const NodeFacts& facts;
};

struct WorkerCount {
  int workers = 0;  // As given: 0 and less are refused later, as in torchrun.
  std::optional<std::string> cuda_visible_devices;  // What the workers get instead: gpu:1,3.
};

Checked<WorkerCount> count_workers(const WorkerCountRequest& request);

/// --virtual-local-rank: each worker needs an entry of CUDA_VISIBLE_DEVICES where that is set.
Checked<void> check_virtual_devices(const AgentOptions& options, const Environment& environment);

/// --numa-binding: asks for the machine, and fills in each worker's CPUs. The number of workers
/// must be known.
Checked<void> plan_numa(const Flags& flags, const Environment& environment, const NodeFacts& facts,
                        LaunchPlan& plan);

}  // namespace muster

// Determines the number of workers on this node (--nproc-per-node), their devices, and their CPUs
// (--numa-binding).
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
  std::string flag;                         // The flag's name for error messages.
  const std::string* cuda_visible_devices;  // Of the environment; null: not set.
  const NodeFacts& facts;
};

struct WorkerCount {
  int workers = 0;  // 0 if 0 or less is given, which is refused later, as in torchrun.
  std::optional<std::string> cuda_visible_devices;  // The workers' value, for gpu:1,3.
  bool of_cpus = false;                             // One worker for each CPU.
};

Checked<WorkerCount> count_workers(const WorkerCountRequest& request);

/// For --virtual-local-rank: if the list of devices is set, it must have an entry for each worker.
Checked<void> check_virtual_devices(const AgentOptions& options, const Environment& environment);

/// For --numa-binding: queries the machine and fills in each worker's CPUs. The number of workers
/// must be known.
Checked<void> plan_numa(const Flags& flags, const Environment& environment, const NodeFacts& facts,
                        LaunchPlan& plan);

}  // namespace muster

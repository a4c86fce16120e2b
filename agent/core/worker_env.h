// A worker's whole environment: the variables that the agent inherited, and those that identify
// this worker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/ranks.h"
#include "base/ids.h"

namespace muster {

/// What the round decided; it is the same for all workers of the node.
struct RoundFacts {
  GroupRank group_rank;
  int group_world_size = 1;
  AssignedRanks ranks;
  std::string master_addr;
  std::uint16_t master_port = 0;
  int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT.
  /// Higher than in every earlier round of the run. 0: the rendezvous does not provide it.
  std::int64_t generation = 0;
  bool use_agent_store = true;  // A store already listens at master_addr:master_port.
};

/// Names with their values. No name occurs twice.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// A plug-in's changes of the variables that it got from announced_env().
struct EnvironmentChanges {
  Variables set;
  std::vector<std::string> unset;  // The worker gets the inherited value of this name, or none.
  bool operator==(const EnvironmentChanges&) const = default;
};

/// Identifies the worker, with the facts that differ between the workers of a node.
struct WorkerIdentity {
  LocalRank local_rank;
  std::string error_file;  // Empty: none (--log-dir /dev/null).
  std::string job_token;   // The value of MUSTER_JOB; without ':'.
  std::string channel;     // The path in MUSTER_WORKER_CHANNEL. Empty: no channel.
  EnvironmentChanges changes = {};
};

inline constexpr std::string_view kCudaVisibleDevices = "CUDA_VISIBLE_DEVICES";
inline constexpr std::string_view kHipVisibleDevices = "HIP_VISIBLE_DEVICES";

/// The variable whose list --virtual-local-rank shares out among the workers: as in torchrun 2.15,
/// HIP_VISIBLE_DEVICES where it has a value, `hip_devices`. But the GPUs that
/// --nproc-per-node=gpu:1,3 chooses are always in CUDA_VISIBLE_DEVICES.
std::string_view variable_of_devices(const AgentOptions& options, std::string_view hip_devices);

/// The agent's own `environment`, in which the variables of options such as --omp replace those of
/// the same name.
std::vector<std::string> inherited_by_workers(std::vector<std::string> environment,
                                              const AgentOptions& options);

/// "NAME=value" for every variable; no name occurs twice. The inherited variables come first, in
/// their order, without those that muster sets. The variables that muster sets follow, in a fixed
/// order. If an inherited name occurs twice, its first value is used, as by getenv and Python.
/// Entries without a name are dropped. With --virtual-local-rank, the list of devices has an entry
/// for each worker: check_virtual_devices() in the launcher refuses shorter lists.
std::vector<std::string> worker_env(const std::vector<std::string>& inherited,
                                    const AgentOptions& options, const RoundFacts& round,
                                    const WorkerIdentity& worker);

/// The variables that torchrun passes to a plug-in of --logs-specs before a worker is started:
/// those that identify the worker.
Variables announced_env(const std::vector<std::string>& inherited, const AgentOptions& options,
                        const RoundFacts& round, LocalRank local_rank);

/// True if a process with this variable ("NAME=value") in its environment is a descendant of the
/// job: directly, or through another muster that one of the job's workers started.
bool marks_job(std::string_view variable, std::string_view job_token);

}  // namespace muster

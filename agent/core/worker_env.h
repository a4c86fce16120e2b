// A worker's whole environment: what the agent inherited, and what makes it this worker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/system/result.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/ranks.h"
#include "rendezvous/core/ids.h"

namespace muster {

/// What the round decided, the same for all workers of the node.
struct RoundFacts {
  GroupRank group_rank;
  int group_world_size = 1;
  AssignedRanks ranks;
  std::string master_addr;
  std::uint16_t master_port = 0;
  int restart_count = 0;  // This node's own failures so far.
  /// Higher than that of every round of the run before it; 0: the rendezvous does not say it.
  std::int64_t generation = 0;
  bool use_agent_store = true;  // A store already listens at master_addr:master_port.
};

/// Names with their values, no name twice.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// What a plug-in did to the variables that announced_env() told it of.
struct EnvironmentChanges {
  Variables set;
  std::vector<std::string> unset;  // The worker has what it inherits under that name, or nothing.
  bool operator==(const EnvironmentChanges&) const = default;
};

/// Which worker it is for, and what differs between the workers of a node.
struct WorkerIdentity {
  LocalRank local_rank;
  std::string error_file;  // Empty: none (--log-dir /dev/null).
  std::string job_token;   // Goes into MUSTER_JOB; without ':'.
  std::string channel;     // The path in MUSTER_WORKER_CHANNEL; empty: there is none.
  EnvironmentChanges changes = {};
};

/// Why a worker cannot have an environment: a sentence for the user.
struct WorkerEnvError {
  std::string text;
};

/// The agent's own `environment` with what options such as --omp say in place of what it says.
std::vector<std::string> inherited_by_workers(std::vector<std::string> environment,
                                              const AgentOptions& options);

/// "NAME=value" for every variable, no name twice: the inherited ones in their order, without those
/// that are ours, then ours in a fixed order. An inherited name that occurs twice counts with its
/// first value, as getenv and Python read it; entries without a name are dropped. Fails only if
/// --virtual-local-rank finds too few devices in CUDA_VISIBLE_DEVICES.
boost::system::result<std::vector<std::string>, WorkerEnvError> worker_env(
    const std::vector<std::string>& inherited, const AgentOptions& options, const RoundFacts& round,
    const WorkerIdentity& worker);

/// What torchrun tells a plug-in of --logs-specs about a worker before it is started: the variables
/// that make it this worker. Fails as worker_env().
boost::system::result<Variables, WorkerEnvError> announced_env(
    const std::vector<std::string>& inherited, const AgentOptions& options, const RoundFacts& round,
    LocalRank local_rank);

/// True if a process with this variable ("NAME=value") in its environment descends from the job:
/// directly, or through a launcher of ours that one of its workers started.
bool marks_job(std::string_view variable, std::string_view job_token);

}  // namespace muster

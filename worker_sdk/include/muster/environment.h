// The rank of this process and other values that a launcher sets in the environment, checked.
//
// Needs no LibTorch (target muster::worker_env). Works under muster, torchrun,
// torch.distributed.launch, srun and mpirun, and without a launcher for one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/error.h"

namespace muster {

/// The source of the ranks. The first source that is found counts, in this order.
enum class LaunchedBy {
  Launcher,       // RANK, WORLD_SIZE, …: muster, torchrun, Kubeflow, or a person.
  Slurm,          // srun, one task for each rank: SLURM_PROCID, SLURM_STEP_NUM_TASKS, …
  OpenMpi,        // mpirun: OMPI_COMM_WORLD_RANK, …
  SingleProcess,  // Nothing is set: rank 0 of 1.
};

/// The place of a process in its job. (Python: a script reads these values from os.environ.)
struct Environment {
  LaunchedBy launched_by = LaunchedBy::SingleProcess;
  int rank = 0;              // RANK: the rank among all processes of the job, from 0.
  int world_size = 1;        // WORLD_SIZE: the number of processes in the job.
  int local_rank = 0;        // LOCAL_RANK, or 0: the rank on this node. It chooses the GPU.
  int local_world_size = 1;  // LOCAL_WORLD_SIZE, or 1: the number of processes on this node.
  int group_rank = 0;        // GROUP_RANK: the number of this node, from 0.
  int group_world_size = 1;  // GROUP_WORLD_SIZE: the number of nodes.
  int role_rank = 0;         // ROLE_RANK: the rank among the processes of this role.
  int role_world_size = 1;   // ROLE_WORLD_SIZE: the number of processes of this role.
  std::string role_name = "default";      // ROLE_NAME.
  std::string master_addr = "127.0.0.1";  // MASTER_ADDR: the host of the store.
  std::uint16_t master_port = 0;          // MASTER_PORT. 0: a single process, which needs no store.
  int restart_count = 0;                  // TORCHELASTIC_RESTART_COUNT: 0 in the first attempt.
  int max_restarts = 0;                   // TORCHELASTIC_MAX_RESTARTS.
  std::string run_id = "none";            // TORCHELASTIC_RUN_ID: the launcher's --rdzv-id.
  bool use_agent_store = false;           // Whether the launcher hosts the store, not rank 0.
  std::string error_file;                 // TORCHELASTIC_ERROR_FILE. Empty: there is none.

  bool operator==(const Environment&) const = default;
};

/// Returns the value of a variable, or nothing if it is not set. An empty value counts as not set,
/// as in torch.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Reads the environment of this process. With arguments, also reads the `--local-rank=N` that
/// torch.distributed.launch passes. If LOCAL_RANK is set, too, it must have the same value.
///
/// RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT, are enough, as in Python. Without
/// LOCAL_RANK and LOCAL_WORLD_SIZE, this process counts as the only one on its node (local rank 0
/// of 1), as Kubeflow's PyTorchJob starts processes. A launcher that starts several processes on a
/// node must set both.
///
/// Any process may call it, at any time and in any thread. The local rank of a call with arguments
/// is kept for later calls without arguments, for init_process_group() and for local_device().
/// Nothing else is kept.
///
/// Throws Error for the first variable that is missing or wrong. The text names the variable, its
/// value, and the program that should have set it.
Environment read_environment(int argc = 0, const char* const* argv = nullptr);

/// Reads the variables and arguments from any source, for tests and unusual launchers. Pure.
Environment read_environment(const EnvironmentLookup& lookup,
                             const std::vector<std::string>& arguments = {});

/// The name of a source for messages, such as "Slurm's srun".
std::string_view describe(LaunchedBy launched_by);

}  // namespace muster

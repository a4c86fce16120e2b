// Who this process is in its job: what a launcher put into the environment, checked once.
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

/// Where the ranks come from. The first that is found counts, in this order.
enum class LaunchedBy {
  Launcher,       // RANK, WORLD_SIZE, …: muster, torchrun, Kubeflow, or a person.
  Slurm,          // srun, one task for each rank: SLURM_PROCID, SLURM_STEP_NUM_TASKS, …
  OpenMpi,        // mpirun: OMPI_COMM_WORLD_RANK, …
  SingleProcess,  // Nothing is set: rank 0 of 1.
};

/// One process's place in the job. In Python: what a script reads from os.environ.
struct Environment {
  LaunchedBy launched_by = LaunchedBy::SingleProcess;
  int rank = 0;              // RANK: among all processes of the job, from 0.
  int world_size = 1;        // WORLD_SIZE: processes in the job.
  int local_rank = 0;        // LOCAL_RANK, or 0: among this node's processes; chooses the GPU.
  int local_world_size = 1;  // LOCAL_WORLD_SIZE, or 1: processes on this node.
  int group_rank = 0;        // GROUP_RANK: this node, from 0.
  int group_world_size = 1;  // GROUP_WORLD_SIZE: nodes.
  int role_rank = 0;         // ROLE_RANK, ROLE_WORLD_SIZE: among the processes of one role.
  int role_world_size = 1;
  std::string role_name = "default";      // ROLE_NAME.
  std::string master_addr = "127.0.0.1";  // MASTER_ADDR: where the store is.
  std::uint16_t master_port = 0;          // MASTER_PORT; 0 for a single process: no store.
  int restart_count = 0;                  // TORCHELASTIC_RESTART_COUNT: 0 the first time.
  int max_restarts = 0;                   // TORCHELASTIC_MAX_RESTARTS.
  std::string run_id = "none";            // TORCHELASTIC_RUN_ID: --rdzv-id.
  bool use_agent_store = false;           // The launcher hosts the store, not rank 0.
  std::string error_file;                 // TORCHELASTIC_ERROR_FILE; empty: none.

  bool operator==(const Environment&) const = default;
};

/// Looks a variable up; nothing if it is not set. An empty value counts as not set, as for torch.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Reads this process's environment and, if given, its arguments (for the `--local-rank=N` that
/// torch.distributed.launch passes; LOCAL_RANK, if set as well, must say the same).
/// RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT, are enough, as for Python: without
/// LOCAL_RANK and LOCAL_WORLD_SIZE this process is taken for the only one of its node (local rank 0
/// of 1), as Kubeflow's PyTorchJob starts them. Who starts several on a node must set both.
/// Any process may call it, at any time and on any thread. Of a call with arguments the local rank
/// is kept for calls without, init_process_group() and local_device(); nothing else is kept. Throws
/// Error for the first variable that is missing or wrong; the text names it, its value, and who
/// should have set it.
Environment read_environment(int argc = 0, const char* const* argv = nullptr);

/// The same from any source, for tests and unusual launchers. Pure.
Environment read_environment(const EnvironmentLookup& lookup,
                             const std::vector<std::string>& arguments = {});

/// "muster or torchrun", "srun", …: for messages.
std::string_view describe(LaunchedBy launched_by);

}  // namespace muster

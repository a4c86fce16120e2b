// The process groups of torch.distributed: their members and their backend.
//
// They use LibTorch's own c10d, with the store keys, group names and bytes of PyTorch. So C++ and
// Python processes can be in one group. The collective operations are in muster/collectives.h.
//
// Threads: as in torch.distributed, these functions are not thread-safe. Only one thread of a
// process may call init_process_group(), new_group() and destroy_process_group(). While one of them
// runs, no other thread may use a group, or call is_initialized(), get_rank() or get_world_size().
// At other times, all threads may. Before a thread destroys a group, other threads must have
// finished using it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "muster/environment.h"

namespace muster {

/// A handle of a group. Copies refer to the same group. new_group() returns a handle. A
/// default-constructed handle means the group of all processes that exists when the handle is used,
/// like `group=None` in Python.
class ProcessGroup {
 public:
  struct State;

  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  /// This process's rank in the group, from 0; -1 if it is not a member. (Python: get_rank(group).)
  int rank() const;
  /// The number of members; -1 if this process is not a member. (Python: get_world_size(group).)
  int size() const;
  bool is_member() const { return rank() >= 0; }
  /// Whether this is the group of all processes.
  bool is_default() const { return state_ == nullptr; }
  /// Convert a rank in the whole job to a rank in this group, and back. Throw Error for a rank that
  /// is not a member. (Python: get_group_rank, get_global_rank.)
  int group_rank(int global_rank) const;
  int global_rank(int group_rank) const;
  /// "gloo", "nccl", or "cpu:gloo,cuda:nccl". (Python: get_backend(group), but lists both.)
  const std::string& backend() const;
  /// LibTorch's own object, for operations that this SDK does not have. Throws Error if this
  /// process is not a member, or before init_process_group().
  c10::intrusive_ptr<c10d::ProcessGroup> torch_group() const;

 private:
  friend void destroy_process_group(const ProcessGroup& group);
  friend c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroup& group);  // Private.
  const State& state() const;

  std::shared_ptr<const State> state_;  // Null: the group of all processes.
};

struct ProcessGroupOptions {
  /// The limit for connecting, and for each collective operation. Default: 30 minutes, or 10
  /// minutes with NCCL alone, as in Python.
  std::optional<std::chrono::milliseconds> timeout;
  /// The GPU of this process, for NCCL. NCCL then connects at once, and not in the first collective
  /// operation. Default: none, or with PyTorch's newer NCCL class, as in Python from torch 2.15 on,
  /// the GPU with the number of the local rank. See local_device(). (Python: device_id.)
  std::optional<c10::Device> device;
  /// Replaces read_environment().
  std::optional<Environment> environment;
  /// Replaces the store at MASTER_ADDR:MASTER_PORT. Of the environment, only ranks are then used.
  c10::intrusive_ptr<c10d::Store> store;
};

/// Joins the group of all processes. All processes of the job must call it. With Gloo, or with NCCL
/// and a device, it returns when all processes have joined. With NCCL and no device, it returns
/// when it has connected to the store.
///
/// "nccl" is the class that Python makes of it: the release of torch and TORCH_DIST_USE_NCCL2
/// decide, and all ranks of a job need the same one (docs/worker_sdk.md).
///
/// backend: "gloo" (for the CPU, and for CUDA tensors, which are copied through the CPU), "nccl"
/// (CUDA), "cpu:gloo,cuda:nccl", or "". "" means NCCL if LibTorch sees a GPU, and Gloo otherwise.
///
/// The store: with TORCHELASTIC_USE_AGENT_STORE=True, this process is a client of the launcher's
/// store. Otherwise rank 0 hosts the store at MASTER_PORT. A single process without a launcher
/// needs no store.
///
/// Throws Error if the group exists already, if the backend is unknown or not in this build, if the
/// environment is wrong, or if the store cannot be reached, and c10::Error if a member does not
/// come in time. (Python: init_process_group.)
void init_process_group(const std::string& backend = "", const ProcessGroupOptions& options = {});

/// Makes the GPU with the number of this process's local rank the current device, and returns it.
/// Returns the CPU if LibTorch sees no GPU. A local rank from --local-rank=N counts if
/// read_environment() was called with the arguments before. Call local_device() before
/// init_process_group(), because NCCL uses the current device. Throws Error if this process has no
/// GPU because the node has fewer GPUs than processes.
/// (Python: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])).)
c10::Device local_device();

/// Whether the group of all processes exists: from the end of init_process_group() to
/// destroy_process_group(). Any process may call it. (Python: is_initialized().)
bool is_initialized();

/// The environment that init_process_group() has read. Throws Error before init_process_group().
const Environment& environment();

struct NewGroupOptions {
  std::string backend;  // "": the backend of the group of all processes.
  std::optional<std::chrono::milliseconds> timeout;
};

/// Creates a group of some processes, which are given by their ranks in the job. ALL processes of
/// the job must call it in the same order, members or not. A process that is not a member gets a
/// handle with rank -1. The ranks are sorted first, as in Python. Throws Error if a rank is listed
/// twice or does not exist, and c10::Error if a member does not come in time. (Python: new_group.)
ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options = {});

/// The rank of this process in the job, and the number of processes. -1 before
/// init_process_group(). (Python: get_rank() and get_world_size(), which throw in that case.)
int get_rank();
int get_world_size();

/// Leaves all groups. Every process should call it when its work is done, after a barrier. A
/// failing process must not call it, because it may wait for peers for ever: the process should
/// end, and the launcher ends the others. The function does nothing if there is no group.
/// (Python: destroy_process_group.)
void destroy_process_group();

/// Leaves one group of new_group(). The other groups stay. Every member should call it, after a
/// barrier in the group: all members must have finished new_group() and all use of the group. A
/// process that is not a member may call it, too. Afterwards, rank() of all handles of the group is
/// -1, and their use throws Error. For the group of all processes, this is destroy_process_group().
/// Throws Error if the group was destroyed already. (Python: destroy_process_group(group).)
void destroy_process_group(const ProcessGroup& group);

/// Calls init_process_group() in its constructor, and destroy_process_group() in its destructor,
/// except if an exception leaves the block.
class ProcessGroupScope {
 public:
  explicit ProcessGroupScope(const std::string& backend = "",
                             const ProcessGroupOptions& options = {});
  ~ProcessGroupScope();
  ProcessGroupScope(const ProcessGroupScope&) = delete;
  ProcessGroupScope& operator=(const ProcessGroupScope&) = delete;

 private:
  int exceptions_;
};

}  // namespace muster

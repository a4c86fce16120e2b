// Process groups, as torch.distributed has them: who takes part, over which backend.
//
// On LibTorch's own c10d: the same store keys, group names and bytes as PyTorch, so that C++ and
// Python processes can be in one group. The collectives are in muster/collectives.h.
// Like torch.distributed, not thread-safe: one thread of each process calls init_process_group(),
// new_group() and destroy_process_group(), and no other thread may use a group, or ask
// is_initialized(), get_rank() or get_world_size(), while one of them runs. Between those calls all
// threads may. What one thread destroys another one must have finished with.
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

/// A handle of a group; copies are the same group. Made by new_group(), or, by default, "the
/// group of all processes", as `group=None` in Python: whichever that is when it is used.
class ProcessGroup {
 public:
  struct State;

  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  /// This process's rank in the group, from 0; -1 if it is not a member. (Python: get_rank(group).)
  int rank() const;
  /// Members. -1 if this process is not one of them. (Python: get_world_size(group).)
  int size() const;
  bool is_member() const { return rank() >= 0; }
  /// Whether this is the group of all processes.
  bool is_default() const { return state_ == nullptr; }
  /// Between ranks of the whole job and ranks of this group. Throw Error for a rank that is no
  /// member. (Python: get_group_rank, get_global_rank.)
  int group_rank(int global_rank) const;
  int global_rank(int group_rank) const;
  /// "gloo", "nccl", or "cpu:gloo,cuda:nccl". (Python: get_backend(group), but lists both.)
  const std::string& backend() const;
  /// LibTorch's object, for whatever this SDK does not wrap. Throws Error if this process is no
  /// member, or before init_process_group().
  c10::intrusive_ptr<c10d::ProcessGroup> torch_group() const;

 private:
  friend void destroy_process_group(const ProcessGroup& group);
  friend c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroup& group);  // Private.
  const State& state() const;

  std::shared_ptr<const State> state_;  // Empty: the default group.
};

struct ProcessGroupOptions {
  /// For connecting, and for each collective. Default: Python's, 30 minutes, 10 with NCCL alone.
  std::optional<std::chrono::milliseconds> timeout;
  /// NCCL: the GPU of this process; connects at once instead of at the first collective
  /// (Python's device_id). See local_device().
  std::optional<c10::Device> device;
  /// Instead of read_environment().
  std::optional<Environment> environment;
  /// Instead of the store at MASTER_ADDR:MASTER_PORT. Only ranks are read from the environment.
  c10::intrusive_ptr<c10d::Store> store;
};

/// Joins the group of all processes. All processes of the job must call it; it returns when all
/// are there (Gloo, NCCL with a device) or once the store is reached (NCCL without).
/// backend: "gloo" (CPU, and CUDA tensors by way of the CPU), "nccl" (CUDA), "cpu:gloo,cuda:nccl",
/// or "" for NCCL where LibTorch sees a GPU and Gloo elsewhere.
/// The store: a client of the launcher's (TORCHELASTIC_USE_AGENT_STORE=True), otherwise rank 0
/// hosts it at MASTER_PORT; a single process without launcher needs none.
/// Throws Error: twice, unknown backend, NCCL in a build without it, wrong environment, a store
/// that cannot be reached. (Python: init_process_group.)
void init_process_group(const std::string& backend = "", const ProcessGroupOptions& options = {});

/// This process's own GPU, by its local rank (also the one of --local-rank=N, once
/// read_environment() was given the arguments), made the current device; the CPU where LibTorch
/// sees no GPU. Before init_process_group(): NCCL takes the current device. Throws Error if this
/// node has fewer GPUs than processes. (Python:
/// torch.cuda.set_device(int(os.environ["LOCAL_RANK"])).)
c10::Device local_device();

/// Whether there is a group of all processes: from the end of init_process_group() to
/// destroy_process_group(). Any process. (Python: is_initialized().)
bool is_initialized();

/// What init_process_group() read. Throws Error before it.
const Environment& environment();

struct NewGroupOptions {
  std::string backend;  // "": as the default group.
  std::optional<std::chrono::milliseconds> timeout;
};

/// A group of some processes, by their ranks in the job. ALL processes of the job must call it, in
/// the same order, members or not; a process that is no member gets a handle with rank -1.
/// The ranks are sorted first, as in Python. Throws Error for ranks that are twice or not there.
/// (Python: new_group.)
ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options = {});

/// Rank and number of all processes. -1 before init_process_group(). (Python: get_rank() and
/// get_world_size(), which throw there.)
int get_rank();
int get_world_size();

/// Leaves all groups. Every process should call it when the work is done, after a barrier; not in a
/// failing process, where waiting for peers may hang: end it, the launcher ends the others.
/// Nothing happens if there is none. (Python: destroy_process_group.)
void destroy_process_group();

/// Leaves one group of new_group(); the others stay. Every member should call it, after a barrier
/// in the group: the others must have finished with it, and with new_group() itself. On a process
/// that is no member nothing is left, but it may be called there, too. All handles of the group are
/// without a group afterwards: rank() is -1, and using it throws Error. For the default group as
/// destroy_process_group(). Throws Error the second time. (Python: destroy_process_group(group).)
void destroy_process_group(const ProcessGroup& group);

/// init_process_group() now, destroy_process_group() at the end of the block unless an exception
/// leaves it.
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

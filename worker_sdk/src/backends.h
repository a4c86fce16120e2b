// Makes LibTorch's process groups from the names of backends. Only backends.cc, named_gloo and
// nccl_backend.cc use Gloo and NCCL. Private.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace muster {

/// The backend for each type of device, in the order in which PyTorch makes the backends.
struct BackendPlan {
  std::string text;  // "gloo", "nccl", or "cpu:gloo,cuda:nccl".
  std::vector<std::pair<std::string, std::string>> by_device;  // {"cpu", "gloo"}, …
  bool has(std::string_view backend) const;
};

/// Throws Error if the backend is unknown, and for NCCL in a build without it.
BackendPlan plan_backends(const std::string& backend);

struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;  // The parent group's store. This group adds "<name>/".
  std::string name;
  std::string description;  // PyTorch's group_desc.
  int rank = 0;
  std::vector<int> global_ranks;
  bool is_default = false;
  std::chrono::milliseconds timeout{};
  std::optional<c10::Device> device;
  /// The NCCL backend of the group of all processes, from which the members split this group's.
  /// Null: the members connect to each other.
  c10::intrusive_ptr<c10d::Backend> split_from = {};
};

struct MadeGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// The NCCL backend from which Python splits subgroups. Null: they connect by themselves.
  c10::intrusive_ptr<c10d::Backend> split_source;
  std::shared_ptr<void> recorder;  // Records the group's operations for as long as it lives.
};

/// Makes a group. Uses the same keys in the store as PyTorch. With Gloo, waits for the other
/// members.
MadeGroup make_group(const BackendPlan& plan, const GroupRequest& request);

struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // With the device's prefix.
  const GroupRequest& group;
};

/// In nccl_backend.cc; or in nccl_missing.cc, where it throws Error.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);
/// Throws Error where NCCL is not compiled in.
void require_nccl();
/// PyTorch's default timeout for NCCL alone, ten minutes.
std::chrono::milliseconds nccl_default_timeout();
/// The GPU that "nccl" binds if the caller names none, as PyTorch 2.15's does. Empty: none.
std::optional<c10::Device> nccl_default_device(int local_rank);
/// Whether Python splits subgroups from the group of all processes, in this job.
bool nccl_splits_groups();
/// Every process that is no member of a group must call this where the members split it.
void skip_nccl_split(c10d::Backend& split_from, c10::Device device);
/// The flight recorder, for a backend that has none of its own. Null: not needed.
std::shared_ptr<void> record_nccl_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                        const GroupRequest& request);

}  // namespace muster

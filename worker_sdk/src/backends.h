// From a backend's name to LibTorch's objects: the only files that know Gloo and NCCL. Private.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace muster {

/// Which backend serves which type of device, in the order that PyTorch makes them.
struct BackendPlan {
  std::string text;  // "gloo", "nccl", or "cpu:gloo,cuda:nccl".
  std::vector<std::pair<std::string, std::string>> by_device;  // {"cpu", "gloo"}, …
  bool has(std::string_view backend) const;
};

/// Throws Error for what is unknown, and for NCCL in a build without it.
BackendPlan plan_backends(const std::string& backend);

struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;  // The parent's; the group adds "<name>/".
  std::string name;
  std::string description;  // As PyTorch's group_desc.
  int rank = 0;
  std::vector<int> global_ranks;
  bool is_default = false;
  std::chrono::milliseconds timeout{};
  std::optional<c10::Device> device;
};

/// Connects; the keys in the store are PyTorch's. Waits for the other members (Gloo).
c10::intrusive_ptr<c10d::ProcessGroup> make_group(const BackendPlan& plan,
                                                  const GroupRequest& request);

struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // With the device's prefix.
  const GroupRequest& group;
};

/// nccl_backend.cc, or nccl_missing.cc, which throws Error.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);
/// Throws Error where NCCL is not compiled in.
void require_nccl();
/// PyTorch's for NCCL alone: its own ten minutes.
std::chrono::milliseconds nccl_default_timeout();

}  // namespace muster

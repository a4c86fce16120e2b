#include "backends.h"

#include <algorithm>
#include <map>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/cuda.h>

#include "muster/error.h"
#include "named_gloo.h"

namespace muster {
namespace {

constexpr const char* kBackendsHelp =
    "expected \"gloo\", \"nccl\", \"cpu:gloo,cuda:nccl\", or \"\" for what this machine has";

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupRequest& request) {
  // create_default() reads GLOO_SOCKET_IFNAME and TORCH_GLOO_LAZY_INIT, as Python's binding does.
  auto options = c10d::ProcessGroupGloo::Options::create_default(request.timeout);
  options->group_name = request.name;
  if (!request.is_default)
    options->global_ranks_in_group.assign(request.global_ranks.begin(), request.global_ranks.end());
  const int size = static_cast<int>(request.global_ranks.size());
  return c10::make_intrusive<NamedGloo>(store, request.rank, size, options);
}

// With TORCH_DISTRIBUTED_DEBUG=DETAIL, the ranks compare every collective operation before it runs.
c10::intrusive_ptr<c10d::Backend> wrap_for_debug(c10::intrusive_ptr<c10d::Backend> backend,
                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                 const GroupRequest& request) {
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
  const auto helper_store =
      c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + request.name, store);
  auto helper = make_gloo(helper_store, request);
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, std::move(helper));
}

c10::DeviceType device_type(const std::string& name) {
  return name == "cuda" ? c10::DeviceType::CUDA : c10::DeviceType::CPU;
}

void check_pair(const std::string& backend, const std::string& device, const std::string& name) {
  const bool known = (device == "cpu" && name == "gloo") ||
                     (device == "cuda" && (name == "gloo" || name == "nccl"));
  if (!known)
    throw Error("backend \"" + backend + "\": \"" + device + ":" + name + "\": " + kBackendsHelp +
                ".");
}

}  // namespace

bool BackendPlan::has(std::string_view backend) const {
  return std::any_of(by_device.begin(), by_device.end(),
                     [&](const auto& pair) { return pair.second == backend; });
}

BackendPlan plan_backends(const std::string& backend) {
  BackendPlan plan{.text = backend, .by_device = {}};
  if (backend.empty()) {
    plan.text = torch::cuda::is_available() ? "nccl" : "gloo";
    plan.by_device.emplace_back(plan.text == "nccl" ? "cuda" : "cpu", plan.text);
  } else if (backend == "gloo") {
    plan.by_device = {{"cpu", "gloo"}, {"cuda", "gloo"}};
  } else if (backend == "nccl") {
    plan.by_device = {{"cuda", "nccl"}};
  } else {
    std::string_view rest = backend;
    while (!rest.empty()) {
      const std::string part(rest.substr(0, rest.find(',')));
      rest = part.size() < rest.size() ? rest.substr(part.size() + 1) : "";
      const std::size_t colon = part.find(':');
      if (colon == std::string::npos)
        throw Error("backend \"" + backend + "\": " + kBackendsHelp + ".");
      plan.by_device.emplace_back(part.substr(0, colon), part.substr(colon + 1));
      check_pair(backend, plan.by_device.back().first, plan.by_device.back().second);
    }
  }
  if (plan.has("nccl")) require_nccl();
  return plan;
}

MadeGroup make_group(const BackendPlan& plan, const GroupRequest& request) {
  using Type = c10d::ProcessGroup::BackendType;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(request.name + "/", request.store);
  const int size = static_cast<int>(request.global_ranks.size());
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, request.rank, size);
  MadeGroup result{.group = group, .split_source = {}, .recorder = {}};
  group->setDefaultBackend(plan.has("nccl") ? Type::NCCL : Type::GLOO);
  if (request.device) group->setBoundDeviceId(request.device);

  // A backend for several devices uses the prefix of its first device for its keys in the store.
  std::map<std::string, c10::intrusive_ptr<c10d::Backend>> made;
  for (const auto& [device, name] : plan.by_device) {
    const Type type = name == "nccl" ? Type::NCCL : Type::GLOO;
    auto& backend = made[name];
    if (!backend) {
      const auto device_store = c10::make_intrusive<c10d::PrefixStore>(device + "/", store);
      backend = type == Type::NCCL ? make_nccl_backend({.store = device_store, .group = request})
                                   : make_gloo(device_store, request);
      backend->setSequenceNumberForGroup();
      if (type == Type::NCCL && request.is_default && request.device && nccl_splits_groups())
        result.split_source = backend;
      backend = wrap_for_debug(std::move(backend), device_store, request);
    }
    group->setBackend(device_type(device), type, backend);
  }
  group->setGroupName(request.name);
  group->setGroupDesc(request.description);
  if (plan.has("nccl")) result.recorder = record_nccl_group(group, request);
  if (request.device && plan.has("nccl")) {
    const auto backend = group->getBackend(request.device->type());
    if (backend->supportsSplitting()) backend->eagerConnectSingleDevice(*request.device);
  }
  // Functional collectives look up groups by name.
  c10d::register_process_group(request.name, group);
  return result;
}

}  // namespace muster

// The NCCL backend. Compiled only with a CUDA build of torch, with -DUSE_C10D_NCCL.
#include <cstdlib>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/cuda.h>
#include <torch/version.h>

#include "backends.h"
#include "muster/error.h"
#include "nccl_choice.h"

#if __has_include(<torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>)
#include <torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>
#define MUSTER_HAS_NCCL2 1
#else
#define MUSTER_HAS_NCCL2 0
#endif
#if __has_include(<torch/csrc/distributed/c10d/hooks/FlightRecorderHook.hpp>)
#include <torch/csrc/distributed/c10d/hooks/FlightRecorderHook.hpp>
#define MUSTER_HAS_RECORDER_HOOK 1
#else
#define MUSTER_HAS_RECORDER_HOOK 0
#endif

namespace muster {
namespace {

constexpr TorchRelease kTorch{TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR};

std::optional<std::string_view> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string_view>(value);
}

bool makes_nccl2() {
  return choose_nccl(kTorch, variable(kUseNccl2)) == NcclClass::ProcessGroupNCCL2;
}

c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> options_of(const GroupRequest& group) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = group.timeout;
  options->group_name = group.name;
  if (!group.is_default)
    options->global_ranks_in_group.assign(group.global_ranks.begin(), group.global_ranks.end());
  return options;
}

#if MUSTER_HAS_NCCL2
c10::intrusive_ptr<c10d::Backend> make_nccl2(const BackendRequest& request) {
  const GroupRequest& group = request.group;
  auto options = options_of(group);
  if (group.split_from) return group.split_from->split(request.store, group.global_ranks, options);
  const int size = static_cast<int>(group.global_ranks.size());
  return c10::make_intrusive<c10d::nccl2::ProcessGroupNCCL>(request.store, group.rank, size,
                                                            std::move(options));
}
#endif

}  // namespace

void require_nccl() {
#if !MUSTER_HAS_NCCL2
  if (makes_nccl2())
    throw Error("the backend \"nccl\" is ProcessGroupNCCL2 in the Python of torch " TORCH_VERSION
                ", and this LibTorch has no headers of it: set TORCH_DIST_USE_NCCL2=0 in all ranks "
                "of the job.");
#endif
}

std::chrono::milliseconds nccl_default_timeout() {
  return c10d::kProcessGroupNCCLDefaultTimeout;
}

std::optional<c10::Device> nccl_default_device(int local_rank) {
  if (!makes_nccl2() || !nccl2_binds_a_device(kTorch)) return std::nullopt;
  const auto count = torch::cuda::device_count();
  if (count == 0)
    throw Error(
        "the backend \"nccl\" needs a GPU, and LibTorch sees none: use \"gloo\", or check the "
        "driver and CUDA_VISIBLE_DEVICES.");
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count));
}

bool nccl_splits_groups() {
  return makes_nccl2();
}

void skip_nccl_split([[maybe_unused]] c10d::Backend& split_from,
                     [[maybe_unused]] c10::Device device) {
#if MUSTER_HAS_NCCL2
  dynamic_cast<c10d::nccl2::ProcessGroupNCCL&>(split_from).performNocolorSplit(device);
#endif
}

std::shared_ptr<void> record_nccl_group(
    [[maybe_unused]] const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    [[maybe_unused]] const GroupRequest& request) {
#if MUSTER_HAS_RECORDER_HOOK
  if (makes_nccl2() && recorder_entries(variable("TORCH_FR_BUFFER_SIZE"),
                                        variable("TORCH_NCCL_TRACE_BUFFER_SIZE")) > 0) {
    return c10d::FlightRecorderHook::attach(
        group, {request.global_ranks.begin(), request.global_ranks.end()});
  }
#endif
  return nullptr;
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
#if MUSTER_HAS_NCCL2
  if (makes_nccl2()) return make_nccl2(request);
#endif
  const GroupRequest& group = request.group;
  const int size = static_cast<int>(group.global_ranks.size());
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, group.rank, size,
                                                     options_of(group));
}

}  // namespace muster

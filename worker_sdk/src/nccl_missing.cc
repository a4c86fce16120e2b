// Replaces nccl_backend.cc if LibTorch has no NCCL.
#include "backends.h"
#include "muster/error.h"

namespace muster {

void require_nccl() {
  throw Error(
      "the backend \"nccl\" is not in this build: the LibTorch that it was built with is for CPUs. "
      "Use \"gloo\", or build the SDK with a CUDA build of torch (docs/gpu.md).");
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest&) {
  require_nccl();
  return {};
}

std::chrono::milliseconds nccl_default_timeout() {
  return std::chrono::minutes(10);
}

std::optional<c10::Device> nccl_default_device(int) {
  return std::nullopt;
}

bool nccl_splits_groups() {
  return false;
}

void skip_nccl_split(c10d::Backend&, c10::Device) {}

std::shared_ptr<void> record_nccl_group(const c10::intrusive_ptr<c10d::ProcessGroup>&,
                                        const GroupRequest&) {
  return nullptr;
}

}  // namespace muster

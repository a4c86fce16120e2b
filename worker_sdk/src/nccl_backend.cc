// The NCCL backend. Compiled only with a CUDA build of torch, with -DUSE_C10D_NCCL.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "backends.h"
#include "muster/error.h"

namespace muster {

void require_nccl() {}

std::chrono::milliseconds nccl_default_timeout() {
  return c10d::kProcessGroupNCCLDefaultTimeout;
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  const GroupRequest& group = request.group;
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = group.timeout;
  options->group_name = group.name;
  if (!group.is_default)
    options->global_ranks_in_group.assign(group.global_ranks.begin(), group.global_ranks.end());
  const int size = static_cast<int>(group.global_ranks.size());
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, group.rank, size, options);
}

}  // namespace muster

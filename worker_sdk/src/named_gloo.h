// Gloo's backend, with errors for those who do not come by way of collectives.h. Private.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace muster {

/// LibTorch's reducer waits for the future of an all_reduce within backward(), where no code of
/// ours stands between it and the user: what Gloo throws becomes c10::Error in the future itself.
class NamedGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
};

}  // namespace muster

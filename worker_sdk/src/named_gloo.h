// Gloo's backend, with named errors for callers that do not use collectives.h. Private.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace muster {

/// LibTorch's reducer waits for an all_reduce, or for its future, within backward(). No code of the
/// SDK is between the reducer and the user there. So this class turns Gloo's exceptions into
/// c10::Error in the work itself.
class NamedGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
};

}  // namespace muster

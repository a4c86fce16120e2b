// Communication hooks and the autograd node behind DistributedDataParallel. Private.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "muster/distributed_data_parallel.h"

namespace muster {

void register_comm_hook(c10d::Reducer& reducer, CommHook hook,
                        const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// What backward() does for outputs that went through pass_through_sink().
struct SinkState : torch::CustomClassHolder {
  std::weak_ptr<c10d::Reducer> reducer;
  bool static_graph = false;
  bool delayed_all_reduce_queued = false;
};

/// Outputs of forward() once more, behind an autograd node that leaves undefined gradients of
/// unused outputs undefined, and, in the first step of a static graph, starts the all-reduce after
/// everything else.
std::vector<torch::Tensor> pass_through_sink(const c10::intrusive_ptr<SinkState>& state,
                                             std::vector<torch::Tensor> outputs);

}  // namespace muster

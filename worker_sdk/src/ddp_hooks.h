// Communication hooks and the autograd node behind DistributedDataParallel. Private.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "muster/distributed_data_parallel.h"

namespace muster {

void register_comm_hook(c10d::Reducer& reducer, CommHook hook,
                        const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// The state of the autograd node of pass_through_sink().
struct SinkState : torch::CustomClassHolder {
  std::weak_ptr<c10d::Reducer> reducer;
  bool static_graph = false;
  bool delayed_all_reduce_queued = false;
};

/// Returns the outputs of forward() behind an autograd node. The node keeps undefined gradients of
/// unused outputs undefined. In the first step of a static graph, it also starts the all-reduce
/// after everything else.
std::vector<torch::Tensor> pass_through_sink(const c10::intrusive_ptr<SinkState>& state,
                                             const std::vector<torch::Tensor>& outputs);

}  // namespace muster

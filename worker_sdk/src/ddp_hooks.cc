#include "ddp_hooks.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>

namespace muster {
namespace {

// LibTorch has the hook for half precision. The hook for bfloat16 exists only in Python.
class Bf16CompressHook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const torch::Tensor& buffer = bucket.getBuffer();
    std::vector<torch::Tensor> compressed{buffer.to(torch::kBFloat16).div_(state_->getSize())};
    auto sum = state_->allreduce(compressed)->getFuture();
    const auto decompress = [buffer](c10::ivalue::Future& done) {
      buffer.copy_(done.value().toTensorVector().front());
      return c10::IValue(std::vector<torch::Tensor>{buffer});
    };
    return sum->then(decompress, sum->elementType());
  }
};

class Sink : public torch::autograd::Function<Sink> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const c10::intrusive_ptr<SinkState>& state,
                                                at::TensorList outputs) {
    context->set_materialize_grads(false);
    context->saved_data["state"] = c10::IValue::make_capsule(
        c10::static_intrusive_pointer_cast<torch::CustomClassHolder>(state));
    torch::autograd::variable_list copies;
    for (const torch::Tensor& output : outputs)
      copies.push_back(output.clone());
    return copies;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto holder = context->saved_data["state"].toCapsule();
    auto& state = static_cast<SinkState&>(*holder);
    if (state.static_graph && !state.delayed_all_reduce_queued) {
      if (const auto reducer = state.reducer.lock())
        torch::autograd::Engine::get_default_engine().queue_callback(
            [reducer] { reducer->delay_all_reduce(); });
      state.delayed_all_reduce_queued = true;
    }
    gradients.insert(gradients.begin(), torch::Tensor());  // The state has no gradient.
    return gradients;
  }
};

}  // namespace

void register_comm_hook(c10d::Reducer& reducer, CommHook hook,
                        const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  switch (hook) {
    case CommHook::AllReduce:
      return;  // The reducer does this itself, with the division fused into a copy.
    case CommHook::Fp16Compress:
      return reducer.register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
    case CommHook::Bf16Compress:
      return reducer.register_comm_hook(std::make_unique<Bf16CompressHook>(group));
  }
}

std::vector<torch::Tensor> pass_through_sink(const c10::intrusive_ptr<SinkState>& state,
                                             const std::vector<torch::Tensor>& outputs) {
  // The list must have exactly this type: in others, LibTorch does not find the tensors.
  return Sink::apply(state, at::TensorList(outputs));
}

}  // namespace muster

// DistributedDataParallel: each process has a copy of the model, and the gradients are averaged
// over all processes.
//
//     Net model;            // Any torch::nn::Module.
//     model->to(device);
//     muster::DistributedDataParallel ddp(model);  // In all processes. Copies rank 0's parameters.
//     torch::optim::Adam optimizer(model->parameters());  // Must come after ddp.
//
//     loss_of(ddp(images), labels).backward();  // Averages gradients while it computes them.
//     optimizer.step();
//
// It uses LibTorch's c10d::Reducer, as Python's DDP does, with the same buckets in the same order.
// So the results are the same bits.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "muster/process_group.h"

namespace muster {

/// How a bucket of gradients is sent. The compressing hooks halve the traffic of float32 gradients,
/// and lose precision. (Python: default_hooks.allreduce_hook, fp16_compress_hook,
/// bf16_compress_hook.)
enum class CommHook { AllReduce, Fp16Compress, Bf16Compress };

/// The names and defaults are Python's if a comment does not say otherwise.
struct DistributedDataParallelOptions {
  ProcessGroup process_group;  // Default: all processes.
  /// Tensors that are inputs of forward() are moved to this device (Python: device_ids). All
  /// parameters must be on it. Leave it out if the model is on several devices.
  std::optional<torch::Device> device;
  bool init_sync = true;             // Compare shapes, then copy rank 0's parameters and buffers.
  bool forward_sync_buffers = true;  // Copy rank 0's buffers before each forward().
  std::optional<double> bucket_cap_mb;  // In MiB. Default: 25, and 1 for the first bucket.
  bool find_unused_parameters = false;  // Some parameters may have no part in the loss.
  /// Saves one copy of the gradients, because each grad becomes a view of a bucket. The program
  /// must then use zero_grad() of DDP.
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  // The graph and the used parameters stay as in the first step.
  CommHook comm_hook = CommHook::AllReduce;
};

namespace ddp_detail {

template <class Value>
concept TupleLike = requires {
  std::tuple_size<Value>::value;
};
template <class Value>
concept OptionalLike = requires(Value& value) {
  value.has_value();
  *value;
};
template <class Value>
concept RangeLike = requires(Value& value) {
  std::begin(value);
  std::end(value);
};

/// Calls `visitor` for every tensor in the output of forward(): a tensor, or containers, tuples and
/// optionals of tensors. A tensor may be undefined, as Python's outputs may be None. For your own
/// type, declare visit_tensors(YourType&, visitor) beside it.
template <class Value, class Visitor>
void visit(Value& value, Visitor& visitor) {
  if constexpr (std::is_same_v<Value, torch::Tensor>) {
    visitor(value);
  } else if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
    return;
  } else if constexpr (requires { visit_tensors(value, visitor); }) {
    visit_tensors(value, visitor);
  } else if constexpr (TupleLike<Value> && !RangeLike<Value>) {
    std::apply([&visitor](auto&... parts) { (visit(parts, visitor), ...); }, value);
  } else if constexpr (OptionalLike<Value>) {
    if (value.has_value()) visit(*value, visitor);
  } else {
    static_assert(RangeLike<Value>,
                  "DistributedDataParallel does not know where the tensors in this output are: "
                  "declare visit_tensors(Output&, visitor) beside the type.");
    for (auto& part : value)
      visit(part, visitor);
  }
}

}  // namespace ddp_detail

/// The part that does not depend on the module's type.
class DistributedDataParallelBase {
 public:
  /// All members of the process group must construct it at the same time, with models of the same
  /// shapes and with the same options. Throws Error if no parameter requires a gradient, if the
  /// parameters are on several types of devices, or if one is not on the device of the options.
  /// Throws c10::Error if the shapes differ between processes. A lost peer or a timeout is a
  /// c10::Error here, in forward() and in backward().
  DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module,
                              DistributedDataParallelOptions options);
  ~DistributedDataParallelBase();
  DistributedDataParallelBase(const DistributedDataParallelBase&) = delete;
  DistributedDataParallelBase& operator=(const DistributedDataParallelBase&) = delete;

  /// While this object exists, gradients add up locally. The first backward() after it averages the
  /// sums. The forward passes must also be inside of its scope. (Python: with ddp.no_sync().)
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DistributedDataParallelBase& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallelBase& ddp_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// Returns the module's parameters, each once, for an optimizer. LibTorch's module->parameters()
  /// has those of a module that is registered twice (tied layers) twice, and an optimizer would
  /// change them twice in each step. (Python: ddp.parameters().)
  std::vector<torch::Tensor> parameters() const;

  /// Makes the gradients of all parameters undefined. With gradient_as_bucket_view, use this
  /// function: LibTorch's Optimizer::zero_grad() detaches the gradients first, which views do not
  /// allow. (Python: optimizer.zero_grad(set_to_none=True), which works with views, too.)
  void zero_grad();

 protected:
  void before_forward();
  void after_forward(const std::vector<torch::Tensor*>& outputs);
  const std::optional<torch::Device>& input_device() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class Module>
class DistributedDataParallel : public DistributedDataParallelBase {
 public:
  explicit DistributedDataParallel(std::shared_ptr<Module> module,
                                   DistributedDataParallelOptions options = {})
      : DistributedDataParallelBase(module, std::move(options)), module_(std::move(module)) {}
  /// For module holders, which TORCH_MODULE defines.
  explicit DistributedDataParallel(const torch::nn::ModuleHolder<Module>& holder,
                                   DistributedDataParallelOptions options = {})
      : DistributedDataParallel(holder.ptr(), std::move(options)) {}

  /// Calls the module's forward(). All members must call it equally often, except under no_sync(),
  /// or under torch::NoGradGuard with buffers that are not synchronised. Use module() for an
  /// evaluation.
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    before_forward();
    auto output = module_->forward(place(std::forward<Inputs>(inputs))...);
    std::vector<torch::Tensor*> tensors;
    auto collect = [&tensors](torch::Tensor& tensor) {
      if (tensor.defined()) tensors.push_back(&tensor);
    };
    ddp_detail::visit(output, collect);
    after_forward(tensors);
    return output;
  }
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  /// The wrapped module, for parameters(), train(), eval(), saving, and evaluation.
  const std::shared_ptr<Module>& module() const { return module_; }
  Module* operator->() const { return module_.get(); }

 private:
  template <class Input>
  decltype(auto) place(Input&& input) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<Input>, torch::Tensor>) {
      const std::optional<torch::Device>& device = input_device();
      return device ? input.to(*device, /*non_blocking=*/true) : torch::Tensor(input);
    } else {
      return std::forward<Input>(input);
    }
  }

  std::shared_ptr<Module> module_;
};

template <class Module>
DistributedDataParallel(const torch::nn::ModuleHolder<Module>&) -> DistributedDataParallel<Module>;
template <class Module>
DistributedDataParallel(const torch::nn::ModuleHolder<Module>&, DistributedDataParallelOptions)
    -> DistributedDataParallel<Module>;

}  // namespace muster

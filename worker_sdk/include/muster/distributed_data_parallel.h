// DistributedDataParallel: one copy of a model in each process, gradients averaged among them.
//
//     Net model;            // A torch::nn::Module like any other.
//     model->to(device);
//     muster::DistributedDataParallel ddp(model);  // All processes: parameters are now rank 0's.
//     torch::optim::Adam optimizer(model->parameters());  // After it.
//
//     loss_of(ddp(images), labels).backward();  // Averages gradients while it computes them.
//     optimizer.step();
//
// On LibTorch's own c10d::Reducer, as Python's: the same buckets, the same order, the same bits.
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

/// What is done to a bucket of gradients on its way. The compressing hooks halve the traffic of
/// float32 gradients and lose digits. (Python: default_hooks.allreduce_hook, fp16_compress_hook,
/// bf16_compress_hook.)
enum class CommHook { AllReduce, Fp16Compress, Bf16Compress };

/// The names and defaults are Python's unless a comment says otherwise.
struct DistributedDataParallelOptions {
  ProcessGroup process_group;  // Default: all processes.
  /// Inputs of forward() that are tensors are moved there (Python: device_ids). Leave it out for a
  /// model that spans several devices. All parameters must be there.
  std::optional<torch::Device> device;
  bool init_sync = true;             // Compare shapes, then take parameters and buffers of rank 0.
  bool forward_sync_buffers = true;  // Take rank 0's buffers before each forward().
  std::optional<double> bucket_cap_mb;  // MiB; default: 25, the first bucket 1.
  bool find_unused_parameters = false;  // Parameters may take no part in the loss.
  /// Saves one copy of the gradients: grad becomes a view of a bucket. Then use zero_grad() of DDP.
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  // Used parameters and graph stay as in the first step.
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

/// Every tensor in what forward() returned: a tensor, or containers, tuples, optionals of them.
/// For a type of your own declare, beside it, visit_tensors(YourType&, visitor).
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
  /// All members of the process group must make it at the same time, on models of the same shapes,
  /// with the same options. Throws Error if no parameter requires a gradient or parameters are on
  /// several types of devices, or not on the device that the options name; c10::Error if the shapes
  /// differ between processes. A lost peer or a timeout is c10::Error here, in forward() and in
  /// backward().
  DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module,
                              DistributedDataParallelOptions options);
  ~DistributedDataParallelBase();
  DistributedDataParallelBase(const DistributedDataParallelBase&) = delete;
  DistributedDataParallelBase& operator=(const DistributedDataParallelBase&) = delete;

  /// While it lives, gradients add up locally; the first backward after it averages the sum.
  /// The forward passes, too, must be inside. (Python: with ddp.no_sync().)
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

  /// Gradients of all parameters become undefined. With gradient_as_bucket_view use this one:
  /// LibTorch's Optimizer::zero_grad() detaches gradients first, which views do not allow.
  /// (Python: optimizer.zero_grad(set_to_none=True), which works with views, too.)
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
  /// For the holders that TORCH_MODULE makes.
  explicit DistributedDataParallel(const torch::nn::ModuleHolder<Module>& holder,
                                   DistributedDataParallelOptions options = {})
      : DistributedDataParallel(holder.ptr(), std::move(options)) {}

  /// The module's forward(). All members must call it equally often, unless under no_sync() or
  /// torch::NoGradGuard with buffers that are not synchronised: use module() to evaluate.
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    before_forward();
    auto output = module_->forward(place(std::forward<Inputs>(inputs))...);
    std::vector<torch::Tensor*> tensors;
    auto collect = [&tensors](torch::Tensor& tensor) { tensors.push_back(&tensor); };
    ddp_detail::visit(output, collect);
    after_forward(tensors);
    return output;
  }
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  /// The wrapped module: for parameters(), train(), eval(), saving, and evaluation.
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

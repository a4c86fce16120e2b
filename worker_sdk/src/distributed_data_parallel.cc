#include "muster/distributed_data_parallel.h"

#include <limits>
#include <set>

#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include "ddp_hooks.h"
#include "named_errors.h"
#include "torch_versions.h"

namespace muster {
namespace {

// The size of one broadcast, as in torch/nn/parallel/distributed.py (2.13).
constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;
constexpr double kBytesPerMiB = 1 << 20;

struct Parameters {
  std::vector<torch::Tensor> tensors;
  std::vector<bool> expect_sparse;
  std::unordered_map<std::size_t, std::string> names;
};

bool makes_sparse_gradients(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>())
    return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

// Tells whether a tensor comes for the first time. LibTorch lists the tensors of a module that is
// registered twice (tied layers) once for each name, and Python lists them once. Ranks of both
// languages must send the same tensors.
class FirstSeen {
 public:
  bool operator()(const torch::Tensor& tensor) {
    return seen_.insert(tensor.unsafeGetTensorImpl()).second;
  }

 private:
  std::set<const void*> seen_;
};

std::vector<torch::Tensor> each_once(const std::vector<torch::Tensor>& tensors) {
  FirstSeen first_seen;
  std::vector<torch::Tensor> once;
  for (const torch::Tensor& tensor : tensors)
    if (first_seen(tensor)) once.push_back(tensor);
  return once;
}

// Returns the parameters in the order of registration, a shared parameter once, as in Python's DDP.
Parameters collect_parameters(const torch::nn::Module& module) {
  Parameters found;
  FirstSeen first_seen;
  for (const auto& part : module.named_modules()) {
    for (const auto& parameter : part.value()->named_parameters(/*recurse=*/false)) {
      const torch::Tensor& tensor = parameter.value();
      if (!tensor.requires_grad() || !first_seen(tensor)) continue;
      found.names.emplace(found.tensors.size(), part.key() + "." + parameter.key());
      found.tensors.push_back(tensor);
      found.expect_sparse.push_back(makes_sparse_gradients(*part.value()));
    }
  }
  return found;
}

void check(const torch::nn::Module& module, const Parameters& parameters) {
  if (parameters.tensors.empty())
    throw Error("DistributedDataParallel: no parameter of " + module.name() +
                " requires a gradient: there is nothing to average. Use the module itself.");
  const auto type = parameters.tensors.front().device().type();
  for (const torch::Tensor& tensor : parameters.tensors)
    if (tensor.device().type() != type)
      throw Error("DistributedDataParallel: parameters of " + module.name() + " are on " +
                  c10::DeviceTypeName(type) + " and on " +
                  c10::DeviceTypeName(tensor.device().type()) +
                  ": expected one type of device. Move the module before wrapping it.");
}

// Throws Error if a parameter is not on the device to which inputs are moved. Python refuses this,
// too.
void check_input_device(const torch::nn::Module& module, const Parameters& parameters,
                        const torch::Device& device) {
  for (const torch::Tensor& tensor : parameters.tensors) {
    const torch::Device found = tensor.device();
    if (found.type() == device.type() && (!device.has_index() || found.index() == device.index()))
      continue;
    if (found.is_cpu() && device.is_cpu()) continue;  // "cpu" and "cpu:0" are the same device.
    throw Error("DistributedDataParallel: inputs are to be moved to " + device.str() +
                " (device), but a parameter of " + module.name() + " is on " + found.str() +
                ": move the module there first; leave device out for a model on several devices.");
  }
}

std::string describe_operation(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return operation_text("DistributedDataParallel", group->getGroupName(), group->getRank(),
                        group->getSize());
}

void copy_from_rank_0(const torch::nn::Module& module,
                      const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  std::vector<torch::Tensor> states;
  for (const torch::Tensor& parameter : each_once(module.parameters()))
    states.push_back(parameter.detach());
  for (const torch::Tensor& buffer : each_once(module.buffers()))
    states.push_back(buffer.detach());
  if (!states.empty()) c10d::broadcast_coalesced(group, states, kBroadcastBytes, 0);
}

// Copies rank 0's buffers and keeps the version counters, as
// torch.autograd._unsafe_preserve_version_counter does. So backward() still works for an earlier
// forward pass that saved a buffer.
void broadcast_buffers(const std::vector<torch::Tensor>& buffers,
                       const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> versions;
  versions.reserve(buffers.size());
  for (const torch::Tensor& buffer : buffers)
    versions.push_back(buffer._version());
  c10d::broadcast_coalesced(group, buffers, kBroadcastBytes, 0);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    auto counter = torch::autograd::impl::version_counter(buffers[i]);
    counter.set_version(versions[i]);
  }
}

// Returns the limits of the first assignment of buckets, which is only for the first backward().
// Later the reducer orders the buckets by the arrival of the gradients, with its own size limits.
std::vector<std::size_t> first_limits(const DistributedDataParallelOptions& options,
                                      std::int64_t first_bytes, std::int64_t bytes) {
  if (options.static_graph || !options.find_unused_parameters)
    return {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
  if (first_bytes < bytes)
    return {static_cast<std::size_t>(first_bytes), static_cast<std::size_t>(bytes)};
  return {static_cast<std::size_t>(bytes)};
}

}  // namespace

struct DistributedDataParallelBase::State {
  std::shared_ptr<torch::nn::Module> module;
  DistributedDataParallelOptions options;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  c10::intrusive_ptr<SinkState> sink;
  bool sync_gradients = true;
  bool sync_buffers_next = true;  // False after a forward pass that did not synchronise gradients.
};

DistributedDataParallelBase::DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module,
                                                         DistributedDataParallelOptions options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.module = std::move(module);
  state.options = std::move(options);
  state.group = state.options.process_group.torch_group();
  Parameters parameters = collect_parameters(*state.module);
  check(*state.module, parameters);
  if (state.options.device) check_input_device(*state.module, parameters, *state.options.device);
  const double cap_mb =
      state.options.bucket_cap_mb.value_or(c10d::kDefaultBucketBytesCap / kBytesPerMiB);
  if (!(cap_mb > 0)) throw Error("bucket_cap_mb=" + std::to_string(cap_mb) + ": expected above 0.");
  const auto bytes = static_cast<std::int64_t>(cap_mb * kBytesPerMiB);
  const std::int64_t first_bytes =
      state.options.bucket_cap_mb ? bytes : c10d::kDefaultFirstBucketBytes;

  if (state.options.init_sync) {
    const auto synchronize = [&] {
      c10d::verify_params_across_processes(state.group, parameters.tensors, std::nullopt);
      copy_from_rank_0(*state.module, state.group);
    };
    with_named_errors([&] { return describe_operation(state.group); }, synchronize);
  }
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      parameters.tensors, first_limits(state.options, first_bytes, bytes),
      parameters.expect_sparse);
  // Usually the gradient of the last parameter is ready first.
  std::reverse(buckets.begin(), buckets.end());
  ReducerRequest request{.parameters = std::move(parameters.tensors),
                         .buckets = std::move(buckets),
                         .group = state.group,
                         .expect_sparse = std::move(parameters.expect_sparse),
                         .bucket_bytes = bytes,
                         .first_bucket_bytes = first_bytes,
                         .find_unused_parameters = state.options.find_unused_parameters,
                         .gradient_as_bucket_view = state.options.gradient_as_bucket_view,
                         .names = std::move(parameters.names)};
  state.reducer = make_reducer(std::move(request));
  state.logger = std::make_shared<c10d::Logger>(state.reducer);
  state.reducer->set_logger(state.logger);
  state.logger->set_construction_data_and_log(state.module->name(), {}, -1,
                                              state.options.forward_sync_buffers,
                                              /*has_sync_bn=*/false, state.options.static_graph);
  state.sink = c10::make_intrusive<SinkState>();
  state.sink->reducer = state.reducer;
  if (state.options.static_graph) {
    state.sink->static_graph = true;
    state.reducer->set_static_graph();
    state.logger->set_static_graph();
  }
  register_comm_hook(*state.reducer, state.options.comm_hook, state.group);
}

DistributedDataParallelBase::~DistributedDataParallelBase() = default;

const std::optional<torch::Device>& DistributedDataParallelBase::input_device() const {
  return state_->options.device;
}

std::vector<torch::Tensor> DistributedDataParallelBase::parameters() const {
  return each_once(state_->module->parameters());
}

void DistributedDataParallelBase::zero_grad() {
  for (torch::Tensor& parameter : state_->module->parameters())
    parameter.mutable_grad().reset();
}

void DistributedDataParallelBase::before_forward() {
  State& state = *state_;
  if (torch::GradMode::is_enabled()) {
    if (state.sync_gradients) {
      state.logger->set_runtime_stats_and_log();
      state.reducer->prepare_for_forward();
    }
    with_named_errors([&] { return describe_operation(state.group); },
                      [&] { state.reducer->rebuild_buckets(); });
  }
  if (!state.sync_buffers_next || !state.options.forward_sync_buffers) return;
  // Read each time: a module may replace its buffers.
  const auto buffers = each_once(state.module->buffers());
  if (buffers.empty()) return;
  with_named_errors([&] { return describe_operation(state.group); },
                    [&] { broadcast_buffers(buffers, state.group); });
}

void DistributedDataParallelBase::after_forward(const std::vector<torch::Tensor*>& outputs) {
  State& state = *state_;
  const bool find_unused = state.options.find_unused_parameters && !state.options.static_graph;
  state.sync_buffers_next = torch::GradMode::is_enabled() && state.sync_gradients;
  if (state.sync_buffers_next) {
    std::vector<torch::Tensor> searched;
    if (find_unused)
      for (const torch::Tensor* output : outputs)
        searched.push_back(*output);
    state.reducer->prepare_for_backward(searched);
  }
  const bool delays = state.options.static_graph && !state.sink->delayed_all_reduce_queued;
  if (!find_unused && !delays) return;
  // Tensors without an autograd graph stay as they are.
  std::vector<torch::Tensor> tracked;
  for (const torch::Tensor* output : outputs)
    if (output->grad_fn()) tracked.push_back(*output);
  if (tracked.empty()) return;
  auto passed = pass_through_sink(state.sink, tracked);
  std::size_t next = 0;
  for (torch::Tensor* output : outputs)
    if (output->grad_fn()) *output = std::move(passed[next++]);
}

DistributedDataParallelBase::NoSync::NoSync(DistributedDataParallelBase& ddp)
    : ddp_(ddp), before_(std::exchange(ddp.state_->sync_gradients, false)) {}

DistributedDataParallelBase::NoSync::~NoSync() {
  ddp_.state_->sync_gradients = before_;
}

}  // namespace muster

#include <utility>

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "tests/conformance/sdk/ranks.h"

#include "muster/distributed_data_parallel.h"

namespace muster::testing {
namespace {

constexpr int kSteps = 4;

// Shared, frozen and, in one variant, unused parameters, buffers, and more than one bucket.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool with_unused)
      : first(8, 16), norm(16), shared(16, 16), last(16, 4), frozen(4, 4), spare(4, 4) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("shared", shared);
    register_module("last", last);
    register_module("frozen", frozen);
    frozen->weight.set_requires_grad(false);
    frozen->bias.set_requires_grad(false);
    if (with_unused) register_module("spare", spare);
  }

  // The second output is undefined, as the weights of torch::nn::MultiheadAttention may be.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& input) {
    torch::Tensor hidden = torch::relu(norm(first(input)));
    hidden = torch::relu(shared(torch::relu(shared(hidden))));
    return {frozen(last(hidden)), {}};
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear shared;
  torch::nn::Linear last;
  torch::nn::Linear frozen;
  torch::nn::Linear spare;
};
TORCH_MODULE(Net);

DistributedDataParallelOptions options_of(const std::string& variant) {
  DistributedDataParallelOptions options;
  if (variant == "small_buckets") options.bucket_cap_mb = 0.001;
  if (variant == "unused") options.find_unused_parameters = true;
  if (variant == "static_graph") options.static_graph = true;
  if (variant.starts_with("fp16")) options.comm_hook = CommHook::Fp16Compress;
  if (variant.starts_with("bf16")) options.comm_hook = CommHook::Bf16Compress;
  if (variant.ends_with("_view")) options.gradient_as_bucket_view = true;
  if (variant == "local_buffers") options.forward_sync_buffers = false;
  return options;
}

// A layer and a norm, which has buffers, are registered under two names each.
struct TiedImpl : torch::nn::Module {
  TiedImpl() : first(8, 8), norm(8), last(8, 3) {
    second = register_module("second", register_module("first", first));
    other_norm = register_module("other_norm", register_module("norm", norm));
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor hidden = torch::relu(norm(first(input)));
    return last(other_norm(second(hidden)));
  }

  torch::nn::Linear first;
  torch::nn::Linear second{nullptr};
  torch::nn::BatchNorm1d norm;
  torch::nn::BatchNorm1d other_norm{nullptr};
  torch::nn::Linear last;
};
TORCH_MODULE(Tied);

}  // namespace

Table run_ddp(const std::string& variant) {
  // Different on each rank: DDP must take rank 0's.
  torch::manual_seed(1 + static_cast<std::uint64_t>(get_rank()));
  Net net(variant == "unused" || variant == "static_graph");
  DistributedDataParallel ddp(net, options_of(variant));
  std::vector<torch::Tensor> trained;
  for (const torch::Tensor& parameter : net->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::manual_seed(100 + static_cast<std::uint64_t>(get_rank()));

  Table table;
  for (int step = 0; step < kSteps; ++step) {
    if (variant.ends_with("_view"))
      ddp.zero_grad();
    else
      optimizer.zero_grad();
    if (variant == "no_sync") {
      const auto guard = ddp.no_sync();
      ddp(torch::randn({5, 8})).first.square().mean().backward();
    }
    const auto [output, undefined] = ddp(torch::randn({5, 8}));
    if (undefined.defined()) throw Error("an undefined output became a tensor");
    output.square().mean().backward();
    const std::string prefix = std::to_string(step) + ".";
    for (const auto& parameter : net->named_parameters())
      if (parameter.value().grad().defined())
        table[prefix + parameter.key()] = parameter.value().grad().clone();
    optimizer.step();
  }
  for (const auto& parameter : net->named_parameters())
    table["end." + parameter.key()] = parameter.value().detach();
  for (const auto& buffer : net->named_buffers())
    table["end." + buffer.key()] = buffer.value();
  return table;
}

Table run_ddp_tied() {
  torch::manual_seed(1 + static_cast<std::uint64_t>(get_rank()));
  Tied net;
  DistributedDataParallel ddp(net);
  Table table;
  for (const auto& parameter : net->named_parameters())
    table["start." + parameter.key()] = parameter.value().detach().clone();
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::manual_seed(100 + static_cast<std::uint64_t>(get_rank()));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    ddp(torch::randn({5, 8})).square().mean().backward();
    optimizer.step();
  }
  for (const auto& parameter : net->named_parameters())
    table["end." + parameter.key()] = parameter.value().detach();
  for (const auto& buffer : net->named_buffers())
    table["end." + buffer.key()] = buffer.value();
  return table;
}

}  // namespace muster::testing

// Tests that need a GPU. worker_sdk/gpu_check.sh starts one process for each rank.
//
// gpu nccl-lazy | nccl-eager | gloo-cuda | transformer
#include <algorithm>
#include <chrono>
#include <iostream>

#include <torch/cuda.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include "muster/worker.h"

namespace muster::testing {
namespace {

constexpr int kWarmUpSteps = 10;
constexpr int kSteps = 50;
constexpr int kRounds = 5;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error("wrong: " + what);
  print_on_rank0("ok: " + what);
}

void check_collectives(torch::Device device) {
  const int size = get_world_size();
  const torch::Tensor mine = torch::full({1000}, 1.0 + get_rank(), device);
  torch::Tensor sum = mine.clone();
  all_reduce(sum);
  expect((sum == size * (size + 1) / 2).all().item<bool>(), "all_reduce");
  torch::Tensor from_last = mine.clone();
  broadcast(from_last, size - 1);
  expect((from_last == size).all().item<bool>(), "broadcast");
  const auto all = all_gather(mine);
  for (int rank = 0; rank < size; ++rank)
    expect((all[static_cast<std::size_t>(rank)] == 1 + rank).all().item<bool>(), "all_gather");
  barrier();
  const c10::IValue value = broadcast_object(c10::IValue("text"), 0);
  expect(value.toStringRef() == "text", "broadcast_object");
}

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : layer(torch::nn::TransformerEncoderLayerOptions(512, 8).dim_feedforward(2048).dropout(0)) {
    register_module("layer", layer);
  }
  torch::Tensor forward(const torch::Tensor& input) { return layer(input); }

  torch::nn::TransformerEncoderLayer layer;
};
TORCH_MODULE(Block);

// Milliseconds for a step: the minimum of several rounds, so that a busy moment does not count.
template <class Forward>
double step_ms(Block& block, Forward forward, const torch::Tensor& input) {
  torch::optim::AdamW optimizer(block->parameters(), 1e-4);
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      for (torch::Tensor& p : block->parameters())
        p.mutable_grad().reset();
      forward(input).square().mean().backward();
      optimizer.step();
    }
    torch::cuda::synchronize();
  };
  run(kWarmUpSteps);
  double least = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run(kSteps);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / kSteps);
  }
  return least;
}

void check_transformer(torch::Device device) {
  torch::manual_seed(1);
  const torch::Tensor input = torch::randn({128, 32, 512}, device);
  Block plain;
  plain->to(device);
  const double without = step_ms(
      plain, [&](const torch::Tensor& x) { return plain(x); }, input);
  torch::manual_seed(1);
  Block wrapped;
  wrapped->to(device);
  DistributedDataParallel ddp(wrapped, {.device = device, .gradient_as_bucket_view = true});
  const double with = step_ms(
      wrapped, [&](const torch::Tensor& x) { return ddp(x); }, input);
  std::cout << "transformer block, step without DDP: " << without << " ms, with: " << with
            << " ms, overhead: " << 100 * (with / without - 1) << " %\n";
  expect(torch::isfinite(wrapped->parameters().front()).all().item<bool>(), "finite weights");
}

int run(const std::string& check) {
  if (!torch::cuda::is_available()) throw Error("LibTorch sees no GPU here");
  // In gloo-cuda two ranks share one GPU, which local_device() correctly refuses.
  const torch::Device device =
      check == "gloo-cuda" ? torch::Device(torch::kCUDA, 0) : local_device();
  ProcessGroupOptions options;
  if (check == "nccl-eager" || check == "transformer") options.device = device;
  const ProcessGroupScope job(check == "gloo-cuda" ? "gloo" : "nccl", options);
  if (check == "transformer")
    check_transformer(device);
  else
    check_collectives(device);
  return 0;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  return muster::record([&] { return muster::testing::run(argc > 1 ? argv[1] : ""); });
}

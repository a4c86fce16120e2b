// The SDK's checks that need a GPU; tests/gpu/checks.py starts one process for each rank.
//
// gpu_checks nccl-lazy | nccl-eager | gloo-cuda | transformer [rehearse]
// gpu_checks gloo-cpu
//
// gloo-cpu needs no GPU. With `rehearse`, the CPU and Gloo take the place of the GPU and NCCL.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <vector>

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
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  torch::Tensor in_group = mine.clone();
  all_reduce(in_group, ReduceOp::Sum, new_group(ranks));
  expect((in_group == sum).all().item<bool>(), "all_reduce in a group of its own");
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
    if (input.is_cuda()) torch::cuda::synchronize();
  };
  // A rehearsal on the CPU runs the code and measures nothing.
  const int steps = input.is_cuda() ? kSteps : 1;
  if (input.is_cuda()) run(kWarmUpSteps);
  double least = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run(steps);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / steps);
  }
  return least;
}

// Saves the model, and loads it into another one on the same device.
void check_checkpoint(Block& trained, torch::Device device) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("muster-gpu-checks-" + std::to_string(environment().master_port));
  const CheckpointOptions options{.folder = folder};
  Checkpoints(options).save(*trained, nullptr, 1);
  Block loaded;
  loaded->to(device);
  const auto progress = Checkpoints(options).load(*loaded, nullptr, device);
  expect(progress && progress->epoch == 1, "a checkpoint is there");
  const auto expected = trained->parameters();
  const auto found = loaded->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!torch::equal(expected[i], found[i])) throw Error("wrong: a weight of the checkpoint");
  print_on_rank0("ok: the checkpoint has the weights");
  std::filesystem::remove_all(folder);
}

void check_transformer(torch::Device device) {
  torch::manual_seed(1);
  const torch::Tensor input = torch::randn({device.is_cuda() ? 128 : 2, 32, 512}, device);
  Block plain;
  plain->to(device);
  const double without = step_ms(
      plain, [&](const torch::Tensor& x) { return plain(x); }, input);
  torch::manual_seed(1);
  Block wrapped;
  wrapped->to(device);
  DistributedDataParallelOptions options{.gradient_as_bucket_view = true};
  if (device.is_cuda()) options.device = device;
  DistributedDataParallel ddp(wrapped, options);
  const double with = step_ms(
      wrapped, [&](const torch::Tensor& x) { return ddp(x); }, input);
  std::cout << "transformer block, step without DDP: " << without << " ms, with: " << with
            << " ms, overhead: " << 100 * (with / without - 1) << " %\n";
  expect(torch::isfinite(wrapped->parameters().front()).all().item<bool>(), "finite weights");
  check_checkpoint(wrapped, device);
}

int run(const std::string& check, bool rehearses) {
  const bool on_cpu = rehearses || check == "gloo-cpu";
  if (!on_cpu && !torch::cuda::is_available()) throw Error("LibTorch sees no GPU here");
  torch::Device device(torch::kCPU);
  // In gloo-cuda two ranks share one GPU, which local_device() correctly refuses.
  if (!on_cpu) device = check == "gloo-cuda" ? torch::Device(torch::kCUDA, 0) : local_device();
  ProcessGroupOptions options;
  if (!on_cpu && (check == "nccl-eager" || check == "transformer")) options.device = device;
  const ProcessGroupScope job(on_cpu || check == "gloo-cuda" ? "gloo" : "nccl", options);
  print_on_rank0("on " + device.str());
  if (check == "transformer")
    check_transformer(device);
  else
    check_collectives(device);
  return 0;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  const std::string check = argc > 1 ? argv[1] : "";
  const bool rehearses = argc > 2 && argv[2] == std::string("rehearse");
  return muster::record([&] { return muster::testing::run(check, rehearses); });
}

// model_parallel.py with the worker SDK: DistributedDataParallel over a model on two devices.
#include <ATen/CPUGeneratorImpl.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <torch/cuda.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "muster/collectives.h"
#include "muster/distributed_data_parallel.h"
#include "muster/print.h"
#include "muster/record.h"

namespace {

constexpr int kBatch = 24;
constexpr int kSteps = 3;
constexpr double kLearningRate = 0.1;

using TwoDevices = std::pair<torch::Device, torch::Device>;

// A model with one part on each device. The activations move from the first device to the second,
// and the gradients move back.
struct TwoPartModelImpl : torch::nn::Module {
  explicit TwoPartModelImpl(const TwoDevices& on) : devices(on), first(10, 16), second(16, 5) {
    register_module("first", first)->to(devices.first);
    register_module("second", second)->to(devices.second);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = torch::relu(first(x.to(devices.first)));
    return second(hidden.to(devices.second));
  }

  TwoDevices devices;
  torch::nn::Linear first;
  torch::nn::Linear second;
};
TORCH_MODULE(TwoPartModel);

// Returns two GPUs for this process if the node has two for each of its processes. Otherwise both
// devices are the CPU.
TwoDevices two_devices() {
  const muster::Environment environment = muster::read_environment();
  if (static_cast<int>(torch::cuda::device_count()) < 2 * environment.local_world_size)
    return {torch::kCPU, torch::kCPU};
  const auto number = static_cast<c10::DeviceIndex>(2 * environment.local_rank);
  return {torch::Device(torch::kCUDA, number),
          torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(number + 1))};
}

struct Data {
  torch::Tensor inputs;
  torch::Tensor labels;
};

// Returns the data of a rank. Each rank has different data, but every rank can compute the data of
// all ranks, so that train_alone() can check the steps.
Data data_of(int rank, int step) {
  const auto seed = 1000 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(rank);
  auto generator = at::detail::createCPUGenerator(seed);
  torch::Tensor inputs = torch::randn({kBatch, 10}, generator);
  return {inputs, torch::randn({kBatch, 5}, generator)};
}

// Trains in one process, with the model on one device and the data of all ranks. Returns the
// resulting parameters.
std::vector<torch::Tensor> train_alone(int size) {
  torch::manual_seed(0);
  TwoPartModel model(TwoDevices{torch::kCPU, torch::kCPU});
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int rank = 0; rank < size; ++rank) {
      const Data data = data_of(rank, step);
      (torch::mse_loss(model(data.inputs), data.labels) / size).backward();
    }
    optimizer.step();
  }
  return model->parameters();
}

int run() {
  const TwoDevices devices = two_devices();
  const bool on_gpus = devices.first.is_cuda();
  muster::ProcessGroupOptions options;
  if (on_gpus) options.device = devices.first;
  const muster::ProcessGroupScope job(on_gpus ? "nccl" : "gloo", options);
  const int rank = muster::get_rank();
  const int size = muster::get_world_size();
  const std::string start = "rank " + std::to_string(rank) + ": ";
  torch::manual_seed(0);
  TwoPartModel model(devices);
  muster::DistributedDataParallel ddp(model);  // Without a device: the model moves its inputs.
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  muster::print_in_order(start + "the parts are on " + devices.first.str() + " and " +
                         devices.second.str());
  for (int step = 0; step < kSteps; ++step) {
    const Data data = data_of(rank, step);
    optimizer.zero_grad();
    const torch::Tensor output = ddp(data.inputs);
    const torch::Tensor loss = torch::mse_loss(output, data.labels.to(output.device()));
    loss.backward();
    optimizer.step();
    char text[60];
    std::snprintf(text, sizeof text, "step %d loss %.4f", step, loss.item<double>());
    muster::print_in_order(start + text);
  }
  bool same = true;
  const auto expected = train_alone(size);
  for (std::size_t i = 0; i < expected.size(); ++i)
    same = same && torch::allclose(model->parameters()[i].cpu(), expected[i], 1e-5, 1e-5);
  muster::print_in_order(start + (same ? "as" : "NOT AS") + " one process with all data");
  return same ? 0 : 1;
}

}  // namespace

int main() {
  return muster::record(run);
}

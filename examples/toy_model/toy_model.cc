// One step of DistributedDataParallel, compared with the same step of one process.
#include <ATen/CPUGeneratorImpl.h>

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "muster/distributed_data_parallel.h"
#include "muster/print.h"
#include "muster/process_group.h"
#include "muster/record.h"

namespace {

constexpr int kBatch = 20;
constexpr double kLearningRate = 0.1;

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() : first(10, 10), second(10, 5) {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }

  torch::nn::Linear first;
  torch::nn::Linear second;
};
TORCH_MODULE(ToyModel);

struct Examples {
  torch::Tensor inputs;
  torch::Tensor labels;
};

// Returns the data of a rank. Each rank has different data, but every rank can compute the data of
// all ranks, so that step_by_hand() can check the step.
Examples examples_of(int rank) {
  auto generator = at::detail::createCPUGenerator(100 + static_cast<std::uint64_t>(rank));
  torch::Tensor inputs = torch::randn({kBatch, 10}, generator);
  return {inputs, torch::randn({kBatch, 5}, generator)};
}

// Does the step in one process with the data of all ranks. The gradient is the mean of the ranks'
// gradients. Returns the resulting parameters.
std::vector<torch::Tensor> step_by_hand(int size) {
  torch::manual_seed(0);
  ToyModel model;
  for (int rank = 0; rank < size; ++rank) {
    const Examples data = examples_of(rank);
    (torch::mse_loss(model(data.inputs), data.labels) / size).backward();
  }
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> stepped;
  for (const torch::Tensor& p : model->parameters())
    stepped.push_back(p - kLearningRate * p.grad());
  return stepped;
}

int run() {
  const muster::ProcessGroupScope job("gloo");
  const int rank = muster::get_rank();
  const int size = muster::get_world_size();
  torch::manual_seed(0);  // The same seed as in step_by_hand(). DDP would copy rank 0's model.
  ToyModel model;
  muster::DistributedDataParallel ddp(model);
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  const Examples data = examples_of(rank);
  torch::Tensor loss = torch::mse_loss(ddp(data.inputs), data.labels);
  loss.backward();  // The gradients are now the mean over all ranks.
  optimizer.step();

  bool same = true;
  const auto expected = step_by_hand(size);
  for (std::size_t i = 0; i < expected.size(); ++i)
    same = same && torch::allclose(model->parameters()[i], expected[i], 1e-5, 1e-6);
  char text[80];
  std::snprintf(text, sizeof text, "rank %d of %d: loss %.4f, the step is %s", rank, size,
                loss.item<double>(), same ? "right" : "WRONG");
  muster::print_in_order(text);
  return same ? 0 : 1;
}

}  // namespace

int main() {
  return muster::record(run);
}

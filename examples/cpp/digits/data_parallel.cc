// Compares DataParallel with DistributedDataParallel: examples/digits/data_parallel.py in C++.
// Without a launcher, one process trains on the whole batch (DataParallel). Under a launcher, each
// process trains on its share of the batch (DistributedDataParallel).
#include <chrono>
#include <cstdio>
#include <optional>

#include <torch/cuda.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "muster/worker.h"
#include "net.h"

#ifdef USE_C10D_NCCL  // LibTorch's data_parallel.h does not compile without CUDA's headers.
#include <torch/nn/parallel/data_parallel.h>
#endif

namespace {

constexpr std::size_t kBatch = 64;  // Images per step, over all processes.
constexpr int kEpochs = 3;
constexpr double kLearningRate = 2e-3;

using Clock = std::chrono::steady_clock;
using Ddp = muster::DistributedDataParallel<digits::DigitsNetImpl>;

// Uses all GPUs of the node from one process: data_parallel() copies the model to each GPU, gives
// each GPU's thread a part of the batch, and gathers the outputs on the first GPU. Without GPUs,
// the model is called as it is, as in Python.
torch::Tensor data_parallel(digits::DigitsNet& net, const torch::Tensor& images) {
#ifdef USE_C10D_NCCL
  if (torch::cuda::device_count() > 0) return torch::nn::parallel::data_parallel(net, images);
#endif
  return net->forward(images);
}

struct Model {
  digits::DigitsNet net;
  std::optional<Ddp> ddp;  // Set only under a launcher.

  torch::Tensor operator()(const torch::Tensor& images) {
    return ddp ? (*ddp)(images) : data_parallel(net, images);
  }
};

// Trains one epoch and returns the mean loss over all its images.
double train_epoch(Model& model, torch::optim::Adam& optimizer, const digits::Dataset& data,
                   muster::DistributedSampler& sampler, int size) {
  const auto total = torch::zeros({2}, torch::dtype(torch::kFloat64).device(data.images.device()));
  sampler.reset();
  while (const auto chosen = sampler.next(kBatch / static_cast<std::size_t>(size))) {
    const std::vector<std::int64_t> numbers(chosen->begin(), chosen->end());
    const auto indices = torch::tensor(numbers).to(data.images.device());
    const auto labels = data.labels.index_select(0, indices);
    optimizer.zero_grad();
    const auto loss =
        torch::cross_entropy_loss(model(data.images.index_select(0, indices)), labels);
    loss.backward();
    optimizer.step();
    total[0] += loss.detach() * labels.size(0);
    total[1] += labels.size(0);
  }
  if (model.ddp) muster::all_reduce(total);
  return (total[0] / total[1]).item<double>();
}

template <class... Values>
void print_line(const char* format, Values... values) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  muster::print_on_rank0(text.data());
}

void print_setup(const Model& model, int size) {
  const std::string name = model.ddp
                               ? "DistributedDataParallel: " + std::to_string(size) + " processes"
                               : "DataParallel: 1 process";
  const auto gpus = torch::cuda::device_count();
  print_line("%s of %d threads, %s; %zu images in each step", name.c_str(),
             torch::get_num_threads(),
             gpus == 0 ? "no GPUs" : (std::to_string(gpus) + " GPUs").c_str(), kBatch);
}

int run() {
  auto train_digits = digits::read_digits(MUSTER_DIGITS_DATA, "train");
  auto test_digits = digits::read_digits(MUSTER_DIGITS_DATA, "t10k");
  const bool alone = muster::read_environment().launched_by == muster::LaunchedBy::SingleProcess;
  const torch::Device device = muster::local_device();
  std::optional<muster::ProcessGroupScope> job;
  if (!alone) job.emplace();
  const int size = alone ? 1 : muster::get_world_size();
  if (kBatch % static_cast<std::size_t>(size) != 0)
    throw muster::Error(std::to_string(size) + " processes: expected a number that divides " +
                        std::to_string(kBatch));

  torch::manual_seed(1);
  Model model{.net = digits::DigitsNet(train_digits.rows, train_digits.columns), .ddp = {}};
  model.net->to(device);
  if (!alone) model.ddp.emplace(model.net);
  torch::optim::Adam optimizer(model.net->parameters(), kLearningRate);
  const auto train = digits::to_dataset(train_digits, device);
  const auto test = digits::to_dataset(test_digits, device);
  muster::DistributedSampler sampler(
      static_cast<std::size_t>(train_digits.count()),
      {.replicas = size, .rank = alone ? 0 : muster::get_rank(), .seed = 1});

  print_setup(model, size);
  const auto started = Clock::now();
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    const double loss = train_epoch(model, optimizer, train, sampler, size);
    print_line("epoch %d/%d: mean loss %.4f", epoch, kEpochs, loss);
  }
  const std::chrono::duration<double> took = Clock::now() - started;
  // Every process has the same model, so each one tests it, and rank 0 prints the result.
  const torch::NoGradGuard no_grad;
  const auto right = (model.net->forward(test.images).argmax(1) == test.labels).sum().item<int>();
  const auto seen = static_cast<int>(test_digits.count());
  print_line("accuracy %.2f %% (%d of %d)", 100.0 * right / seen, right, seen);
  print_line("%.0f images/s", kEpochs * static_cast<double>(train_digits.count()) / took.count());
  if (!alone) muster::barrier();
  return 0;
}

}  // namespace

int main() {
  return muster::record(run);
}

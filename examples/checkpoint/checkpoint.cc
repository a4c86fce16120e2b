// checkpoint.py with the worker SDK. Both programs print the same lines, and each reads the files
// of the other.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "muster/worker.h"

namespace {

constexpr int kBatch = 16;
constexpr double kLearningRate = 0.05;
constexpr double kMomentum = 0.9;

struct Arguments {
  std::filesystem::path folder;
  std::int64_t epochs = 6;
  std::int64_t die_in_epoch = -1;
};

using Ddp = muster::DistributedDataParallel<torch::nn::SequentialImpl>;

torch::nn::Sequential make_model() {
  // push_back() fixes the order in which the layers take random weights. C++ may evaluate the
  // arguments of a single constructor call in any order.
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(8, 32));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Dropout(0.2));
  model->push_back(torch::nn::Linear(32, 1));
  return model;
}

// Rank 0 saves the model. After the barrier, every rank loads it onto its own device.
void share_through_a_file(torch::nn::Module& model, const std::filesystem::path& path,
                          torch::Device device) {
  if (muster::get_rank() == 0) muster::save_file(path, muster::module_state(model));
  muster::barrier();
  muster::load_module_state(model, muster::load_file(path, device));
}

// Returns the mean loss over all ranks. Data and dropout use this rank's random number generator.
double train_epoch(Ddp& ddp, torch::optim::SGD& optimizer, bool dies) {
  const torch::Tensor inputs = torch::randn({kBatch, 8});
  const torch::Tensor targets = inputs.sum(1, /*keepdim=*/true);
  optimizer.zero_grad();
  const torch::Tensor loss = torch::mse_loss(ddp(inputs), targets);
  if (dies) std::raise(SIGKILL);
  loss.backward();
  optimizer.step();
  torch::Tensor mean = loss.detach() / muster::get_world_size();
  muster::all_reduce(mean);
  return mean.item<double>();
}

template <class... Values>
std::string text_of(const char* format, Values... values) {
  char text[80];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

int train(const Arguments& arguments) {
  const torch::Device device = torch::kCPU;
  const muster::ProcessGroupScope job("gloo");
  const int rank = muster::get_rank();
  // Each rank starts with a different model. Below, all ranks load rank 0's.
  torch::manual_seed(static_cast<std::uint64_t>(rank));
  torch::nn::Sequential model = make_model();
  model->to(device);
  share_through_a_file(*model, arguments.folder / "start.pt", device);
  double total = 0;
  for (const torch::Tensor& parameter : model->parameters())
    total += parameter.sum().item<double>();
  muster::print_in_order(text_of("rank %d: the sum of all weights is %.6f", rank, total));

  Ddp ddp(model.ptr());
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
  muster::Checkpoints checkpoints({.folder = arguments.folder, .keep = 2});
  const auto progress = checkpoints.load(*model, &optimizer, device);
  const std::int64_t done = progress ? progress->epoch : 0;
  if (done > 0) muster::print_on_rank0("going on after epoch " + std::to_string(done - 1));
  const bool first_life = muster::environment().restart_count == 0;
  for (std::int64_t epoch = done; epoch < arguments.epochs; ++epoch) {
    const bool dies = rank == 1 && epoch == arguments.die_in_epoch && first_life;
    const double loss = train_epoch(ddp, optimizer, dies);
    muster::print_on_rank0(text_of("epoch %d: loss %.9g", static_cast<int>(epoch), loss));
    checkpoints.save(*model, &optimizer, epoch + 1);
  }
  muster::barrier();
  return 0;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Saves and loads a model in a job; trains with snapshots.");
  app.add_option("folder", arguments.folder, "where snapshots are, on all nodes")->required();
  app.add_option("--epochs", arguments.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--die-in-epoch", arguments.die_in_epoch,
                 "rank 1 kills itself there, the first time");
  CLI11_PARSE(app, argc, argv);
  return train(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  return muster::record([&] { return run(argc, argv); });
}

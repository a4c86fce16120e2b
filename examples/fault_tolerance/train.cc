// train.py with the worker SDK. It does the same steps, with the same losses, and prints the same
// lines.
#include <ATen/CPUGeneratorImpl.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "muster/worker.h"

namespace {

constexpr std::int64_t kBatch = 24;  // Examples per step, over all processes.
constexpr std::int64_t kWidth = 8;
constexpr double kLearningRate = 0.02;
constexpr double kMomentum = 0.9;

struct Arguments {
  std::filesystem::path folder;
  std::int64_t steps = 400;
  std::int64_t save_every = 20;
  double pause = 0.02;  // Seconds of sleep in each step.
};

using Ddp = muster::DistributedDataParallel<torch::nn::SequentialImpl>;

torch::nn::Sequential make_model() {
  torch::manual_seed(0);
  // push_back() fixes the order in which the layers take random weights. C++ may evaluate the
  // arguments of a single constructor call in any order.
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(kWidth, 32));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(32, 1));
  return model;
}

// Returns this rank's share of the step's batch. The batch depends only on the step number, so the
// snapshot needs no data.
torch::Tensor my_share(std::int64_t step) {
  using torch::indexing::None;
  using torch::indexing::Slice;
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step));
  return torch::randn({kBatch, kWidth}, generator)
      .index({Slice(muster::get_rank(), None, muster::get_world_size())});
}

// Does one step and returns the loss of the whole batch.
double train_step(Ddp& ddp, torch::optim::SGD& optimizer, std::int64_t step) {
  const torch::Tensor inputs = my_share(step);
  optimizer.zero_grad();
  const torch::Tensor loss = torch::mse_loss(ddp(inputs), inputs.sum(1, /*keepdim=*/true));
  loss.backward();
  optimizer.step();
  torch::Tensor mean = loss.detach() / muster::get_world_size();
  muster::all_reduce(mean);
  return mean.item<double>();
}

template <class... Values>
std::string text_of(const char* format, Values... values) {
  char text[120];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// Appends a line to steps.csv: time, step, number of processes, loss.
void log_step(const std::filesystem::path& folder, std::int64_t step, double loss) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream(folder / "steps.csv", std::ios::app)
      << text_of("%.3f,%lld,%d,%.6f\n", now.count(), static_cast<long long>(step),
                 muster::get_world_size(), loss);
}

// Whether this step may be done now: run.py can write the last one that may into the file hold.
bool may_do(const std::filesystem::path& folder, std::int64_t step) {
  std::int64_t last = 0;
  return !(std::ifstream(folder / "hold") >> last) || step <= last;
}

int train(const Arguments& arguments) {
  const muster::ProcessGroupScope job("gloo");
  const int size = muster::get_world_size();
  if (kBatch % size != 0)
    throw muster::Error(std::to_string(size) + " processes: expected a number that divides " +
                        std::to_string(kBatch));
  if (muster::get_rank() == 0) std::filesystem::create_directories(arguments.folder);
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
  muster::Checkpoints checkpoints({.folder = arguments.folder, .keep = 2});
  const auto progress = checkpoints.load(*model, &optimizer);
  const std::int64_t done = progress ? progress->epoch : 0;
  Ddp ddp(model.ptr());
  muster::print_on_rank0(
      done > 0 ? text_of("%d processes go on after step %lld", size, static_cast<long long>(done))
               : text_of("%d processes begin", size));
  double loss = 0;
  for (std::int64_t step = done + 1; step <= arguments.steps; ++step) {
    while (!may_do(arguments.folder, step))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    loss = train_step(ddp, optimizer, step);
    // The sleep stands for the computation of a larger model.
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.pause));
    if (muster::get_rank() == 0) log_step(arguments.folder, step, loss);
    if (step % arguments.save_every == 0) checkpoints.save(*model, &optimizer, step);
  }
  if (done < arguments.steps)  // Otherwise an earlier job has already done all steps.
    muster::print_on_rank0(text_of("step %lld done by %d processes: loss %.6f",
                                   static_cast<long long>(arguments.steps), size, loss));
  muster::barrier();
  return 0;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains with as many processes as there are, and goes on when nodes come and go.");
  app.add_option("folder", arguments.folder, "for the snapshots, on all nodes")->required();
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--save-every", arguments.save_every, "steps")->check(CLI::PositiveNumber);
  app.add_option("--pause", arguments.pause, "seconds in each step")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  return train(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  return muster::record([&] { return run(argc, argv); });
}

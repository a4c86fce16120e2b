// train.py with the worker SDK: trains until it is told that a node of the job will go; saves,
// answers and ends. Started again, it goes on with the losses of a training that nobody
// interrupted, to the last digit.
#include <ATen/CPUGeneratorImpl.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <torch/nn.h>
#include <torch/optim/adam.h>

#include "muster/agent.h"
#include "muster/worker.h"

namespace {

constexpr int kBatch = 16;

struct Arguments {
  std::filesystem::path folder;
  std::int64_t steps = 50;
  double pause_s = 0.1;
};

using Ddp = muster::DistributedDataParallel<torch::nn::SequentialImpl>;

torch::nn::Sequential make_model() {
  // push_back() fixes the order in which the layers take random weights.
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(8, 32));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(32, 1));
  return model;
}

// The data of one step follows from the step and the rank, so a snapshot needs no position in the
// data.
torch::Tensor inputs_of(std::int64_t step) {
  const auto seed = static_cast<std::uint64_t>(1000 * step + muster::get_rank());
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn({kBatch, 8}, generator);
}

double train_step(Ddp& ddp, torch::optim::Adam& optimizer, std::int64_t step) {
  const torch::Tensor inputs = inputs_of(step);
  optimizer.zero_grad();
  const torch::Tensor loss = torch::mse_loss(ddp(inputs), inputs.sum(1, /*keepdim=*/true));
  loss.backward();
  optimizer.step();
  torch::Tensor mean = loss.detach() / muster::get_world_size();
  muster::all_reduce(mean);
  return mean.item<double>();
}

// The ranks learn of a notice at different moments. They must agree in which step they stop.
bool all_know_a_notice() {
  torch::Tensor flag = torch::zeros({1});
  if (muster::notice()) flag.fill_(1);
  muster::all_reduce(flag);
  return flag.item<float>() > 0;
}

int train(const Arguments& arguments) {
  const muster::ProcessGroupScope job("gloo");
  muster::ends_itself();  // No signal comes while this process saves.
  torch::manual_seed(0);
  torch::nn::Sequential model = make_model();
  Ddp ddp(model.ptr());
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
  muster::Checkpoints checkpoints({.folder = arguments.folder});
  const auto done = checkpoints.load(*model, &optimizer, torch::kCPU);
  const std::int64_t first = done ? done->epoch : 0;
  if (done) muster::print_on_rank0("going on after step " + std::to_string(first - 1));

  for (std::int64_t step = first; step < arguments.steps; ++step) {
    char text[80];
    std::snprintf(text, sizeof text, "step %d: loss %.17g", static_cast<int>(step),
                  train_step(ddp, optimizer, step));
    muster::print_on_rank0(text);
    muster::progress(step);
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.pause_s));
    if (!all_know_a_notice()) continue;
    const auto notice = muster::notice();  // Empty if another rank alone has one so far.
    checkpoints.save(*model, &optimizer, step + 1);
    muster::saved();  // This rank may be stopped now.
    muster::print_on_rank0("saved after step " + std::to_string(step) +
                           (notice ? ", because of a notice: " + notice->reason : ""));
    return 0;
  }
  checkpoints.save(*model, &optimizer, arguments.steps);
  muster::print_on_rank0("done");
  return 0;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains until it is told that a node of the job will go, and goes on later.");
  app.add_option("--snapshot", arguments.folder, "the folder of snapshots, on all nodes")
      ->required();
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--pause", arguments.pause_s, "seconds after each step")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return train(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  return muster::record([&] { return run(argc, argv); });
}

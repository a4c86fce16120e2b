// A worker of `bench/run ddp`: trains a small network, and writes notes with times. ddp_steps.py
// does the same in Python.
//
//     ddp_steps MODE STEPS
//
//     ddp     with the SDK's DistributedDataParallel
//     plain   the same steps in each process alone, without communication
//
// MUSTER_BENCH_NOTES names the pipe for the notes, and MUSTER_BENCH_GATE the pipe of the gate.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "bench/native/notes.h"
#include "muster/worker.h"

namespace {

using muster::bench::env_or;
using muster::bench::monotonic_ns;
using muster::bench::Notes;

// The same numbers as in ddp_steps.py.
constexpr int kBatch = 64;
constexpr int kInputs = 784;
constexpr int kWidth = 512;
constexpr int kClasses = 10;
constexpr int kWarmUp = 10;
constexpr double kLearningRate = 0.01;

torch::nn::Sequential make_model() {
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(kInputs, kWidth));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(kWidth, kWidth));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(kWidth, kClasses));
  return model;
}

// Returns when no process has the gate open for writing.
void wait_at_gate() {
  const int gate = open(env_or("MUSTER_BENCH_GATE", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (gate < 0 || fcntl(gate, F_SETFL, 0) < 0) throw muster::Error("MUSTER_BENCH_GATE: no gate");
  char byte = 0;
  ssize_t got = 1;
  while (got > 0 || (got < 0 && errno == EINTR))
    got = read(gate, &byte, 1);
  close(gate);
}

int run(const std::string& mode, int steps, const Notes& notes) {
  const muster::ProcessGroupScope job("gloo");
  torch::manual_seed(1);
  torch::nn::Sequential model = make_model();
  std::optional<muster::DistributedDataParallel<torch::nn::SequentialImpl>> ddp;
  if (mode == "ddp") ddp.emplace(model.ptr());
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  torch::manual_seed(100 + static_cast<std::uint64_t>(muster::get_rank()));
  const torch::Tensor inputs = torch::randn({kBatch, kInputs});
  const torch::Tensor labels = torch::randint(kClasses, {kBatch}, torch::kInt64);
  const auto step = [&] {
    optimizer.zero_grad();
    const torch::Tensor output = ddp ? (*ddp)(inputs) : model->forward(inputs);
    torch::cross_entropy_loss(output, labels).backward();
    optimizer.step();
  };
  step();
  notes.write_line("first_step", monotonic_ns());
  for (int i = 0; i < kWarmUp; ++i)
    step();
  muster::barrier();
  notes.write_line("begin", monotonic_ns());
  for (int i = 0; i < steps; ++i)
    step();
  notes.write_line("done", monotonic_ns());
  wait_at_gate();
  muster::barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const long long at_main = monotonic_ns();
  const Notes notes;
  notes.write_line("main", at_main);
  return muster::record([&] {
    const std::string mode = argc == 3 ? argv[1] : "";
    if (mode != "ddp" && mode != "plain") throw muster::Error("usage: ddp_steps ddp|plain STEPS");
    return run(mode, std::stoi(argv[2]), notes);
  });
}

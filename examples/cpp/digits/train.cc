// Trains a small convolutional network on handwritten digits, with any number of processes.
//
// This is examples/digits/train.py in C++. It uses the same network, the same order of images and
// the same learning rates, and prints the same lines.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>

#include <CLI/CLI.hpp>
#include <torch/optim/adam.h>

#include "muster/worker.h"
#include "net.h"

namespace {

struct Arguments {
  std::string data_dir = MUSTER_DIGITS_DATA;
  std::string save;
  int epochs = 8;
  int batch_size = 32;  // Images per step and process.
  double lr = 4e-3;
  std::uint64_t seed = 1;
  int log_every = 10;
};

// Python's OneCycleLR with its default settings, which LibTorch does not have. The learning rate
// rises and then falls to almost nothing. Adam's first beta moves in the opposite direction.
class OneCycle {
 public:
  OneCycle(torch::optim::Adam& optimizer, double max_lr, std::int64_t steps)
      : optimizer_(optimizer), max_lr_(max_lr), steps_(steps) {
    set();
  }
  void step() {
    ++step_;
    set();
  }

 private:
  static double anneal(double from, double to, double part) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
  }
  void set() {
    const double first_lr = max_lr_ / 25;
    const double turn = 0.3 * static_cast<double>(steps_) - 1;
    const double now = static_cast<double>(step_);
    const double rest = static_cast<double>(steps_ - 1) - turn;
    auto& options =
        static_cast<torch::optim::AdamOptions&>(optimizer_.param_groups().front().options());
    const double second_beta = std::get<1>(options.betas());
    if (now <= turn) {
      options.lr(anneal(first_lr, max_lr_, now / turn));
      options.betas({anneal(0.95, 0.85, now / turn), second_beta});
    } else {
      options.lr(anneal(max_lr_, first_lr / 1e4, (now - turn) / rest));
      options.betas({anneal(0.85, 0.95, (now - turn) / rest), second_beta});
    }
  }

  torch::optim::Adam& optimizer_;
  double max_lr_;
  std::int64_t steps_;
  std::int64_t step_ = 0;
};

template <class... Values>
void print_line(const char* format, Values... values) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  muster::print_on_rank0(text.data());
}

struct Training {
  Arguments arguments;
  torch::Device device;
  digits::Dataset train;
  digits::Dataset test;
  muster::DistributedSampler sampler;
};

// Trains one epoch and returns the mean loss over all ranks.
double train_epoch(Training& training, muster::DistributedDataParallel<digits::DigitsNetImpl>& ddp,
                   torch::optim::Adam& optimizer, OneCycle& schedule, int epoch) {
  const auto total = torch::zeros({2}, torch::dtype(torch::kFloat64).device(training.device));
  const std::size_t batch_size = static_cast<std::size_t>(training.arguments.batch_size);
  const std::size_t batches = (training.sampler.num_samples() + batch_size - 1) / batch_size;
  training.sampler.set_epoch(epoch);  // Without this, all epochs use the same order of images.
  training.sampler.reset();
  ddp->train();
  for (std::size_t batch = 1; const auto chosen = training.sampler.next(batch_size); ++batch) {
    const std::vector<std::int64_t> numbers(chosen->begin(), chosen->end());
    const auto indices = torch::tensor(numbers).to(training.device);
    const auto labels = training.train.labels.index_select(0, indices);
    optimizer.zero_grad();
    const auto loss =
        torch::cross_entropy_loss(ddp(training.train.images.index_select(0, indices)), labels);
    loss.backward();
    optimizer.step();
    schedule.step();
    total[0] += loss.detach() * labels.size(0);
    total[1] += labels.size(0);
    const auto every = static_cast<std::size_t>(training.arguments.log_every);
    if (batch % every == 0 || batch == batches)
      print_line("epoch %d batch %zu/%zu loss %.4f", epoch, batch, batches, loss.item<double>());
  }
  muster::all_reduce(total);
  return (total[0] / total[1]).item<double>();
}

struct Count {
  std::int64_t right = 0;
  std::int64_t seen = 0;
  double percent() const { return 100.0 * static_cast<double>(right) / static_cast<double>(seen); }
};

// Tests each test image on exactly one rank, and adds the counts of all ranks. The ranks' shares
// may differ by one image and may be empty. So this function calls the plain module: all ranks must
// call DDP's forward() equally often.
Count count_correct(const Training& training, digits::DigitsNetImpl& model) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto mine =
      torch::indexing::Slice(muster::get_rank(), torch::indexing::None, muster::get_world_size());
  const auto images = training.test.images.index({mine});
  const auto labels = training.test.labels.index({mine});
  const auto counts = torch::zeros({2}, torch::dtype(torch::kInt64).device(training.device));
  if (labels.size(0) > 0) {
    counts[0] = (model.forward(images).argmax(1) == labels).sum();
    counts[1] = labels.size(0);
  }
  muster::all_reduce(counts);
  return {counts[0].item<std::int64_t>(), counts[1].item<std::int64_t>()};
}

void train(const Arguments& arguments, digits::Digits& train_digits, digits::Digits& test_digits) {
  // Choose the device before the process group is created: NCCL uses the current device.
  const torch::Device device = muster::local_device();
  const muster::ProcessGroupScope job;
  Training training{
      .arguments = arguments,
      .device = device,
      .train = digits::to_dataset(train_digits, device),
      .test = digits::to_dataset(test_digits, device),
      .sampler = muster::DistributedSampler(static_cast<std::size_t>(train_digits.count()),
                                            {.seed = static_cast<std::int64_t>(arguments.seed)})};
  print_line("world of %d processes, %s on %s; %lld images of %lldx%lld to train, %lld to test",
             muster::get_world_size(), muster::ProcessGroup().backend().c_str(),
             device.is_cuda() ? "cuda" : "cpu", static_cast<long long>(train_digits.count()),
             static_cast<long long>(train_digits.rows),
             static_cast<long long>(train_digits.columns),
             static_cast<long long>(test_digits.count()));
  torch::manual_seed(arguments.seed);
  digits::DigitsNet model(train_digits.rows, train_digits.columns);
  model->to(device);
  muster::DistributedDataParallel ddp(model);
  torch::optim::Adam optimizer(model->parameters(), arguments.lr);
  const auto batches =
      (static_cast<int>(training.sampler.num_samples()) + arguments.batch_size - 1) /
      arguments.batch_size;
  OneCycle schedule(optimizer, arguments.lr, std::int64_t{arguments.epochs} * batches);

  const auto started = std::chrono::steady_clock::now();
  Count count;
  for (int epoch = 1; epoch <= arguments.epochs; ++epoch) {
    const double loss = train_epoch(training, ddp, optimizer, schedule, epoch);
    count = count_correct(training, *model);
    print_line("epoch %d/%d done: mean loss %.4f, accuracy %.2f %% (%lld of %lld)", epoch,
               arguments.epochs, loss, count.percent(), static_cast<long long>(count.right),
               static_cast<long long>(count.seen));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  print_line("trained in %.1f s", took.count());
  if (!arguments.save.empty() && muster::get_rank() == 0) {
    muster::save_file(arguments.save, muster::module_state(*model));
    print_line("saved %s", arguments.save.c_str());
  }
  print_line("test accuracy: %.2f %% (%lld of %lld)", count.percent(),
             static_cast<long long>(count.right), static_cast<long long>(count.seen));
  muster::barrier();  // No rank ends before rank 0 has saved the model.
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Train a small network on handwritten digits with DistributedDataParallel.");
  app.add_option("--data-dir", arguments.data_dir, "folder with MNIST's four IDX files")
      ->capture_default_str();
  app.add_option("--epochs", arguments.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch-size", arguments.batch_size, "images per step and process")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", arguments.lr)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seed", arguments.seed)->capture_default_str();
  app.add_option("--log-every", arguments.log_every)->check(CLI::PositiveNumber);
  app.add_option("--save", arguments.save, "where rank 0 saves the model, for torch.load");
  CLI11_PARSE(app, argc, argv);
  // Check the data first: an error on this node shows before the other ranks wait for this one.
  auto train_digits = digits::read_digits(arguments.data_dir, "train");
  auto test_digits = digits::read_digits(arguments.data_dir, "t10k");
  if (train_digits.rows != test_digits.rows || train_digits.columns != test_digits.columns ||
      std::min(train_digits.rows, train_digits.columns) < digits::kSmallestSide)
    throw digits::DataError(arguments.data_dir + ": expected images of one size, 4x4 at least.");
  train(arguments, train_digits, test_digits);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return muster::record([&] { return run(argc, argv); });
}

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <torch/nn.h>
#include <torch/optim/adam.h>

#include "tests/conformance/sdk/ranks.h"

#include "muster/checkpoint.h"
#include "muster/collectives.h"
#include "muster/distributed_data_parallel.h"

namespace muster::testing {
namespace {

constexpr int kEpochs = 6;
constexpr int kMemoryLayers = 8;
constexpr std::int64_t kMemoryWidth = 2048;  // A layer has 16 MB.

torch::Tensor text_of_error(const std::string& text) {
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  return bytes;
}

template <class Call>
torch::Tensor error_text(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return text_of_error(error.what());
  }
  return text_of_error("no error");
}

// A line of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  throw Error("/proc/self/status has no " + name);
}

torch::nn::Sequential wide_net() {
  torch::nn::Sequential net;
  for (int layer = 0; layer < kMemoryLayers; ++layer)
    net->push_back(
        torch::nn::Linear(torch::nn::LinearOptions(kMemoryWidth, kMemoryWidth).bias(false)));
  return net;
}

}  // namespace

// Measures how far the memory of each rank grows beyond the model while a snapshot of 128 MB is
// loaded.
Table run_checkpoint_memory(const std::string& folder) {
  Checkpoints checkpoints({.folder = folder});
  torch::manual_seed(1);
  torch::nn::Sequential net = wide_net();
  checkpoints.save(*net, nullptr, 1);
  const torch::Tensor first = net->parameters().front().detach().clone();
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters())
      parameter.zero_();
  }
  std::ofstream("/proc/self/clear_refs") << "5";  // The peak is counted from here on.
  const std::int64_t before = status_bytes("VmRSS");
  checkpoints.load(*net, nullptr);
  Table table;
  table["grown"] = torch::tensor(status_bytes("VmHWM") - before);
  table["same"] = torch::tensor(torch::equal(net->parameters().front(), first));
  return table;
}

// Rank 1 has another model: nothing is loaded anywhere.
Table run_checkpoint_misfit(const std::string& folder) {
  Checkpoints checkpoints({.folder = folder});
  torch::nn::Linear net(3, 2);
  checkpoints.save(*net, nullptr, 1);
  torch::nn::Linear other(get_rank() == 1 ? 4 : 3, 2);
  const torch::Tensor before = other->weight.detach().clone();
  Table table;
  table["error"] = error_text([&] { checkpoints.load(*other, nullptr); });
  table["unchanged"] = torch::tensor(torch::equal(other->weight, before));
  // The process group still works.
  table["sum"] = torch::ones({1});
  all_reduce(table["sum"]);
  return table;
}

// Loads the snapshot that the test has put there, into Linear(3, 2).
Table run_checkpoint_foreign(const std::string& folder) {
  torch::nn::Linear net(3, 2);
  Table table;
  table["error"] = error_text([&] { Checkpoints({.folder = folder}).load(*net, nullptr); });
  table["weight"] = net->weight.detach();
  // The process group still works.
  table["sum"] = torch::ones({1});
  all_reduce(table["sum"]);
  return table;
}

// Rank 0 hangs in the file system (a pipe without a writer) until rank 1 has timed out.
Table run_checkpoint_wait(const std::string& folder) {
  const std::string pipe = folder + "/checkpoint-00000001.pt";
  if (get_rank() == 0) {
    std::filesystem::create_directories(folder);
    if (::mkfifo(pipe.c_str(), 0600) != 0) throw Error("mkfifo failed");
  }
  barrier();
  Checkpoints checkpoints({.folder = folder, .save_timeout = std::chrono::milliseconds(500)});
  torch::nn::Linear net(3, 2);
  Table table;
  table["error"] = error_text([&] { checkpoints.save(*net, nullptr, 2); });
  std::signal(SIGPIPE, SIG_IGN);  // Rank 0 may close the pipe as soon as it is open.
  if (get_rank() == 1) std::ofstream(pipe).put('x');
  barrier();
  return table;
}

// Rank 0, which hosts the store, disappears while it writes a checkpoint.
Table run_checkpoint_store_lost(const std::string& folder) {
  const std::string pipe = folder + "/checkpoint-00000001.pt";
  if (get_rank() == 0 && ::mkfifo(pipe.c_str(), 0600) != 0) throw Error("mkfifo failed");
  barrier();
  std::thread stop;
  if (get_rank() == 0)
    stop = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // Rank 1 waits at the store.
      std::_Exit(0);
    });
  Checkpoints checkpoints({.folder = folder});
  torch::nn::Linear net(3, 2);
  std::string text = "no error";
  try {
    checkpoints.save(*net, nullptr, 2);
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  }
  std::ofstream(folder + "/error") << text;
  std::_Exit(0);  // A destructor might wait for the lost rank.
}

// `variant` is "FOLDER" or "FOLDER,EPOCH": the folder of the snapshots, and the epoch before which
// to stop.
Table run_checkpoint(const std::string& variant) {
  const std::size_t comma = variant.find(',');
  const std::filesystem::path folder = variant.substr(0, comma);
  const int stop_before =
      comma == std::string::npos ? kEpochs : std::stoi(variant.substr(comma + 1));
  torch::manual_seed(50 + static_cast<std::uint64_t>(get_rank()));
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Dropout(0.5),
                            torch::nn::Linear(8, 1));
  DistributedDataParallel ddp(net);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.05));
  Checkpoints checkpoints({.folder = folder, .keep = 2});
  const auto done = checkpoints.load(*net, &optimizer);

  Table table;
  table["started_at"] = torch::tensor(done ? done->epoch : -1);
  table["refused"] = torch::tensor(static_cast<int>(done ? done->refused.size() : 0));
  for (std::int64_t epoch = done ? done->epoch : 0; epoch < stop_before; ++epoch) {
    optimizer.zero_grad();
    // Data and dropout come from this rank's own generator, which must continue where it was.
    torch::Tensor loss = ddp(torch::randn({6, 4})).square().mean();
    loss.backward();
    optimizer.step();
    table["loss." + std::to_string(epoch)] = loss.detach();
    checkpoints.save(*net, &optimizer, epoch + 1);
  }
  for (const auto& parameter : net->named_parameters())
    table[parameter.key()] = parameter.value().detach();
  return table;
}

}  // namespace muster::testing

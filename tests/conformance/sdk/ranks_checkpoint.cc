#include <filesystem>

#include <torch/nn.h>
#include <torch/optim/adam.h>

#include "tests/conformance/sdk/ranks.h"

#include "muster/checkpoint.h"
#include "muster/collectives.h"
#include "muster/distributed_data_parallel.h"

namespace muster::testing {
namespace {

constexpr int kEpochs = 6;

}  // namespace

// `variant` is "FOLDER" or "FOLDER,EPOCH": where snapshots go, and before which epoch to stop.
Table run_checkpoint(const std::string& variant) {
  const std::size_t comma = variant.find(',');
  const std::filesystem::path folder = variant.substr(0, comma);
  const int stop_before =
      comma == std::string::npos ? kEpochs : std::stoi(variant.substr(comma + 1));
  torch::manual_seed(static_cast<std::uint64_t>(50 + get_rank()));
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
    // Data and dropout from this rank's own generator: it must go on where it was.
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

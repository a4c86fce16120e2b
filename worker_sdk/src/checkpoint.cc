#include "muster/checkpoint.h"

#include <ATen/Context.h>

#include <set>

#include "checkpoint_bytes.h"
#include "checkpoint_folder.h"
#include "muster/collectives.h"
#include "torch_versions.h"

namespace muster {
namespace {

constexpr std::int64_t kMostEpochs = 999'999'999'999'999'999;  // 18 digits: what load() looks for.

using Dict = c10::impl::GenericDict;

// The CPU, and then each GPU that a part of the model is on.
std::vector<torch::Device> devices_of(const torch::nn::Module& model) {
  std::set<c10::DeviceIndex> gpus;
  for (const auto& entry : module_state(model).toGenericDict())
    if (const torch::Device device = entry.value().toTensor().device(); device.is_cuda())
      gpus.insert(device.index());
  std::vector<torch::Device> devices{torch::kCPU};
  for (const c10::DeviceIndex gpu : gpus)
    devices.emplace_back(torch::kCUDA, gpu);
  return devices;
}

// "cpu", "cuda", "cuda1", …: by the place in the model, as numbers differ among processes.
std::string generator_name(std::size_t place) {
  if (place == 0) return "cpu";
  return place == 1 ? "cuda" : "cuda" + std::to_string(place - 1);
}

torch::Generator generator_of(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

// One byte tensor from each member, of the same size on all of them; the result on the CPU.
std::vector<torch::Tensor> gather_bytes(const torch::Tensor& bytes, torch::Device device,
                                        const ProcessGroup& group) {
  const bool has_cpu = has_backend(*group.torch_group(), torch::kCPU);
  auto all = all_gather(bytes.to(has_cpu ? torch::Device(torch::kCPU) : device), group);
  for (torch::Tensor& one : all)
    one = one.cpu();
  return all;
}

c10::IValue gather_generators(const std::vector<torch::Device>& devices,
                              const ProcessGroup& group) {
  std::vector<Dict> of_rank;
  for (int rank = 0; rank < group.size(); ++rank)
    of_rank.emplace_back(c10::StringType::get(), c10::TensorType::get());
  for (std::size_t place = 0; place < devices.size(); ++place) {
    const auto states =
        gather_bytes(generator_of(devices[place]).get_state(), devices.back(), group);
    for (std::size_t rank = 0; rank < states.size(); ++rank)
      of_rank[rank].insert(generator_name(place), states[rank]);
  }
  c10::impl::GenericList all(c10::AnyType::get());
  for (const Dict& one : of_rank)
    all.push_back(one);
  return all;
}

using GeneratorStates = std::vector<std::pair<torch::Device, torch::Tensor>>;

// This rank's, as far as they are there. Throws Error for one that is not of its generator's size.
GeneratorStates find_generators(const c10::IValue& snapshot,
                                const std::vector<torch::Device>& devices,
                                const ProcessGroup& group) {
  GeneratorStates found;
  const auto all = entry_of(snapshot, "rng", "checkpoint").toList();
  if (static_cast<int>(all.size()) != group.size()) return found;
  const auto mine = all.get(static_cast<std::size_t>(group.rank())).toGenericDict();
  for (std::size_t place = 0; place < devices.size(); ++place) {
    const auto entry = mine.find(generator_name(place));
    if (entry == mine.end()) continue;
    const torch::Tensor state = entry->value().toTensor().cpu();
    const auto expected = generator_of(devices[place]).get_state().sizes().vec();
    if (state.sizes() != expected)
      throw Error("checkpoint: the generator's state \"" + generator_name(place) + "\" has " +
                  std::to_string(state.numel()) + " bytes; this LibTorch's has " +
                  std::to_string(c10::multiply_integers(expected)) + ".");
    found.emplace_back(devices[place], state);
  }
  return found;
}

// Everybody learns how rank 0 fared; nobody waits for one that has failed.
void share_failure(const std::string& failure, const ProcessGroup& group) {
  const std::string shared = broadcast_bytes(failure, group.global_rank(0), group);
  if (!shared.empty()) throw Error(shared);
}

struct Found {
  std::vector<char> bytes;
  Progress progress;
};

// The last written file that can be used, on rank 0; no bytes if there is no file at all.
Found find_newest(const CheckpointOptions& options) {
  Found found;
  const auto files = SnapshotFolder(options.folder, options.name).list();
  for (const SnapshotFile& file : files) {
    if (file.unreadable)  // It may be the newest, and may be there again in a minute.
      throw Error(file.refused + " Remove it to go on from the one before.");
    if (!file.refused.empty()) found.progress.refused.push_back(file.refused);
  }
  for (const SnapshotFile& file : files) {
    if (!file.refused.empty()) continue;
    auto bytes = read_bytes(file.path);
    try {
      check_snapshot(parse_bytes(bytes, file.path), file.path);
    } catch (const Error& error) {
      found.progress.refused.emplace_back(error.what());
      continue;
    }
    found.bytes = std::move(bytes);
    found.progress.file = file.path;
    return found;
  }
  if (!files.empty())
    throw Error("none of the " + std::to_string(files.size()) + " checkpoints in " +
                options.folder.string() +
                " can be used; the newest: " + found.progress.refused.front());
  return found;
}

}  // namespace

Checkpoints::Checkpoints(CheckpointOptions options) : options_(std::move(options)) {
  if (options_.keep < 1)
    throw Error("Checkpoints: keep=" + std::to_string(options_.keep) + ": expected 1 at least.");
  if (options_.name.empty() || options_.name.find('/') != std::string::npos)
    throw Error("Checkpoints: name \"" + options_.name + "\": expected a name without slash.");
}

void Checkpoints::save(const torch::nn::Module& model, const torch::optim::Optimizer* optimizer,
                       std::int64_t epoch) {
  const ProcessGroup& group = options_.process_group;
  if (epoch < 0 || epoch > kMostEpochs)
    throw Error("Checkpoints: epoch " + std::to_string(epoch) + ": expected 0 to " +
                std::to_string(kMostEpochs) + ".");
  const auto generators = gather_generators(devices_of(model), group);
  std::string failure;
  if (group.rank() == 0) {
    try {
      const SnapshotFolder folder(options_.folder, options_.name);
      folder.remove_partials();
      auto others = folder.list();
      Dict snapshot(c10::StringType::get(), c10::AnyType::get());
      snapshot.insert("model", module_state(model));
      snapshot.insert("optimizer",
                      optimizer == nullptr ? c10::IValue() : optimizer_state(*optimizer));
      snapshot.insert("epoch", epoch);
      snapshot.insert("order", others.empty() ? std::int64_t{1} : others.front().order + 1);
      snapshot.insert("world_size", static_cast<std::int64_t>(group.size()));
      snapshot.insert("rng", generators);
      save_file(folder.file(epoch), snapshot);
      folder.prune(std::move(others), folder.file(epoch), options_.keep);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  share_failure(failure, group);
}

std::optional<Progress> Checkpoints::load(torch::nn::Module& model,
                                          torch::optim::Optimizer* optimizer,
                                          c10::Device map_location) {
  const ProcessGroup& group = options_.process_group;
  Found found;
  std::string failure;
  if (group.rank() == 0) {
    try {
      found = find_newest(options_);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  share_failure(failure, group);
  const std::string bytes =
      broadcast_bytes({found.bytes.begin(), found.bytes.end()}, group.global_rank(0), group);
  if (bytes.empty()) return std::nullopt;
  const auto snapshot =
      moved(parse_bytes({bytes.begin(), bytes.end()}, "checkpoint of rank 0"), map_location);
  // All of it is checked before any of it is taken over.
  const c10::IValue state = entry_of(snapshot, "model", "checkpoint");
  check_module_state(model, state);
  const GeneratorStates generators = find_generators(snapshot, devices_of(model), group);
  const c10::IValue saved = entry_of(snapshot, "optimizer", "checkpoint");
  if (optimizer != nullptr) {
    if (saved.isNone()) throw Error("checkpoint: it was saved without an optimizer.");
    load_optimizer_state(*optimizer, saved);
  }
  load_module_state(model, state);
  for (const auto& [device, generator_state] : generators) {
    auto generator = generator_of(device);
    generator.set_state(generator_state);
  }
  found.progress.epoch = entry_of(snapshot, "epoch", "checkpoint").toInt();
  return found.progress;
}

}  // namespace muster

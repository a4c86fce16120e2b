#include "muster/checkpoint.h"

#include <ATen/Context.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string_view>

#include "checkpoint_bytes.h"
#include "checkpoint_folder.h"
#include "checkpoint_stream.h"
#include "checkpoint_wait.h"
#include "muster/collectives.h"
#include "torch_versions.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxEpochs = 999'999'999'999'999'999;  // load() finds up to 18 digits.

using Dict = c10::impl::GenericDict;

// Returns the CPU, and then each GPU that has a part of the model.
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

// Returns "cpu", "cuda", "cuda1", …, by the position in devices_of(), because the numbers of the
// GPUs differ between processes.
std::string generator_name(std::size_t place) {
  if (place == 0) return "cpu";
  return place == 1 ? "cuda" : "cuda" + std::to_string(place - 1);
}

torch::Generator generator_of(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

// Gathers one byte tensor from each member, of the same size on all. The result is on the CPU.
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
  of_rank.reserve(static_cast<std::size_t>(group.size()));
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

// Returns the generator states that the snapshot has for this rank. Throws Error if a state does
// not have the size of its generator's state.
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

SnapshotWriter this_writer() {
  SnapshotWriter writer;
  const char* run_id = std::getenv("TORCHELASTIC_RUN_ID");
  const char* generation = std::getenv("MUSTER_GENERATION");
  if (run_id == nullptr || generation == nullptr) return writer;
  const std::string_view text = generation;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw Error("MUSTER_GENERATION=" + std::string(text) + ": expected a whole number from 0 on.");
  return {.run_id = run_id, .generation = number};
}

// Returns rank 0's answer on all ranks.
bool agree_on(bool answer, const ProcessGroup& group) {
  return !broadcast_bytes(answer ? "1" : "", group.global_rank(0), group).empty();
}

struct Found {
  std::unique_ptr<OpenSnapshot> snapshot;  // Null if there is no file.
  std::int64_t order = 0;
  Progress progress;
};

// Finds the usable file that was written last. Only on rank 0.
Found find_newest(const CheckpointOptions& options) {
  Found found;
  const auto files = SnapshotFolder(options.folder, options.name).list();
  for (const SnapshotFile& file : files) {
    if (file.unreadable)  // It may be the newest file, and may be readable again later.
      throw Error(file.refused + " Remove it to go on from the one before.");
    if (!file.refused.empty()) found.progress.refused.push_back(file.refused);
  }
  for (const SnapshotFile& file : files) {
    if (!file.refused.empty()) continue;
    auto snapshot = std::make_unique<OpenSnapshot>(file.path);
    snapshot->check_readable();
    found.snapshot = std::move(snapshot);
    found.order = file.order;
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
  if (epoch < 0 || epoch > kMaxEpochs)
    throw Error("Checkpoints: epoch " + std::to_string(epoch) + ": expected 0 to " +
                std::to_string(kMaxEpochs) + ".");
  const auto generators = gather_generators(devices_of(model), group);
  RankZeroTask task(group, options_.save_timeout);
  if (group.rank() != 0) {
    task.wait("the checkpoint of epoch " + std::to_string(epoch));
    return;
  }
  std::string failure;
  try {
    write_newest(model, optimizer, epoch, generators);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  task.done(failure);
  if (!failure.empty()) throw Error(failure);
}

// A process of an older round may still run if no one could stop it. It must not replace files that
// processes of a newer round have written since.
void Checkpoints::check_generation(const std::vector<SnapshotFile>& files,
                                   const SnapshotWriter& own) const {
  for (const SnapshotFile& file : files)
    if (newest_order_ && file.order > *newest_order_ && file.writer.run_id == own.run_id &&
        file.writer.generation > own.generation)
      throw Error("this process is of generation " + std::to_string(own.generation) +
                  " of the run, and generation " + std::to_string(file.writer.generation) +
                  " has written " + file.path.string() +
                  " since: this process has been replaced, and must end.");
}

void Checkpoints::write_newest(const torch::nn::Module& model,
                               const torch::optim::Optimizer* optimizer, std::int64_t epoch,
                               const c10::IValue& generators) {
  const SnapshotFolder folder(options_.folder, options_.name);
  folder.remove_partials();
  auto others = folder.list();
  const SnapshotWriter own = this_writer();
  check_generation(others, own);
  // A file that cannot be read at the moment counts as 0, also one that this process has written.
  const std::int64_t newest = others.empty() ? 0 : others.front().order;
  const std::int64_t order = std::max(newest, newest_order_.value_or(0)) + 1;
  Dict snapshot(c10::StringType::get(), c10::AnyType::get());
  snapshot.insert("model", module_state(model));
  snapshot.insert("optimizer", optimizer == nullptr ? c10::IValue() : optimizer_state(*optimizer));
  snapshot.insert("epoch", epoch);
  snapshot.insert("order", order);
  snapshot.insert("world_size", static_cast<std::int64_t>(options_.process_group.size()));
  snapshot.insert("rng", generators);
  if (own.generation >= 0) {
    snapshot.insert("run_id", own.run_id);
    snapshot.insert("generation", own.generation);
  }
  save_file(folder.file(epoch), snapshot);
  newest_order_ = order;
  folder.prune(std::move(others), folder.file(epoch), options_.keep);
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
      newest_order_ = found.order;
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  share_failures(failure, group);
  if (!agree_on(found.snapshot != nullptr, group)) return std::nullopt;
  SnapshotStream stream(found.snapshot ? &found.snapshot->file() : nullptr, group);
  const c10::IValue& snapshot = stream.outline();
  const LaterCopy later = [&stream](const at::Tensor& from, at::Tensor to) {
    stream.copy_later(from, std::move(to));
  };
  // All ranks check the whole snapshot before any rank changes anything.
  std::function<void()> put_model;
  std::function<void()> put_optimizer = [] {};
  GeneratorStates generators;
  try {
    put_model = prepare_module_state(model, entry_of(snapshot, "model", "checkpoint"), later);
    generators = find_generators(snapshot, devices_of(model), group);
    const c10::IValue saved = entry_of(snapshot, "optimizer", "checkpoint");
    if (optimizer != nullptr) {
      if (saved.isNone()) throw Error("checkpoint: it was saved without an optimizer.");
      put_optimizer = prepare_optimizer_state(*optimizer, saved, later);
    }
    found.progress.epoch = entry_of(snapshot, "epoch", "checkpoint").toInt();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  share_failures(failure, group);
  stream.receive(map_location);
  put_model();
  put_optimizer();
  for (const auto& [device, generator_state] : generators) {
    auto generator = generator_of(device);
    generator.set_state(generator_state);
  }
  return found.progress;
}

}  // namespace muster

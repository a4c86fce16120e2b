#include "muster/checkpoint.h"

#include <ATen/Context.h>

#include <algorithm>
#include <map>

#include "checkpoint_bytes.h"
#include "muster/collectives.h"
#include "torch_versions.h"

namespace muster {
namespace {

constexpr std::size_t kEpochDigits = 8;

using Dict = c10::impl::GenericDict;

std::string file_name(const CheckpointOptions& options, std::int64_t epoch) {
  std::string digits = std::to_string(epoch);
  if (digits.size() < kEpochDigits) digits.insert(0, kEpochDigits - digits.size(), '0');
  return options.name + "-" + digits + ".pt";
}

// By epoch; only files of exactly our names.
std::map<std::int64_t, std::filesystem::path> find_files(const CheckpointOptions& options) {
  std::map<std::int64_t, std::filesystem::path> found;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder, failure)) {
    const std::string name = entry.path().filename().string();
    const std::string start = options.name + "-";
    if (!name.starts_with(start) || !name.ends_with(".pt")) continue;
    const std::string digits = name.substr(start.size(), name.size() - start.size() - 3);
    if (digits.size() < kEpochDigits || digits.size() > 18 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    found.emplace(std::stoll(digits), entry.path());
  }
  return found;
}

torch::Device device_of(const torch::nn::Module& model) {
  const auto parameters = model.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
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

c10::IValue gather_generators(torch::Device device, const ProcessGroup& group) {
  const auto cpu = gather_bytes(generator_of(torch::kCPU).get_state(), device, group);
  std::vector<torch::Tensor> cuda;
  if (device.is_cuda()) cuda = gather_bytes(generator_of(device).get_state(), device, group);
  c10::impl::GenericList all(c10::AnyType::get());
  for (std::size_t rank = 0; rank < cpu.size(); ++rank) {
    Dict one(c10::StringType::get(), c10::TensorType::get());
    one.insert("cpu", cpu[rank]);
    if (!cuda.empty()) one.insert("cuda", cuda[rank]);
    all.push_back(one);
  }
  return all;
}

void set_generators(const c10::IValue& snapshot, torch::Device device, const ProcessGroup& group) {
  const auto all = entry_of(snapshot, "rng", "checkpoint").toList();
  if (static_cast<int>(all.size()) != group.size()) return;
  const auto mine = all.get(static_cast<std::size_t>(group.rank())).toGenericDict();
  for (const auto& entry : mine) {
    const torch::Device where = entry.key().toStringRef() == "cuda" ? device : torch::kCPU;
    if (entry.key().toStringRef() == "cuda" && !device.is_cuda()) continue;
    auto generator = generator_of(where);
    generator.set_state(entry.value().toTensor().cpu());
  }
}

// Everybody learns how rank 0 fared; nobody waits for one that has failed.
void share_failure(const std::string& failure, const ProcessGroup& group) {
  const std::string shared = broadcast_bytes(failure, group.global_rank(0), group);
  if (!shared.empty()) throw Error(shared);
}

void check_snapshot(const c10::IValue& snapshot, const std::filesystem::path& path) {
  for (const char* key : {"model", "optimizer", "epoch", "rng"})
    entry_of(snapshot, key, path.string() + ": not a checkpoint of muster");
  if (!entry_of(snapshot, "epoch", path.string()).isInt())
    throw Error(path.string() + ": its epoch is no whole number.");
}

struct Found {
  std::vector<char> bytes;
  Progress progress;
};

// The newest whole file, on rank 0; no bytes if there is no file at all.
Found find_newest(const CheckpointOptions& options) {
  Found found;
  const auto files = find_files(options);
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    try {
      auto bytes = read_bytes(file->second);
      check_snapshot(parse_bytes(bytes, file->second), file->second);
      found.bytes = std::move(bytes);
      found.progress.file = file->second;
      return found;
    } catch (const Error& error) {
      found.progress.refused.emplace_back(error.what());
    }
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
  const auto generators = gather_generators(device_of(model), group);
  std::string failure;
  if (group.rank() == 0) {
    try {
      Dict snapshot(c10::StringType::get(), c10::AnyType::get());
      snapshot.insert("model", module_state(model));
      snapshot.insert("optimizer",
                      optimizer == nullptr ? c10::IValue() : optimizer_state(*optimizer));
      snapshot.insert("epoch", epoch);
      snapshot.insert("world_size", static_cast<std::int64_t>(group.size()));
      snapshot.insert("rng", generators);
      save_file(options_.folder / file_name(options_, epoch), snapshot);
      auto files = find_files(options_);
      while (static_cast<int>(files.size()) > options_.keep) {
        std::error_code ignored;  // One file too many is no reason to stop training.
        std::filesystem::remove(files.begin()->second, ignored);
        files.erase(files.begin());
      }
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
  load_module_state(model, entry_of(snapshot, "model", "checkpoint"));
  const auto saved = entry_of(snapshot, "optimizer", "checkpoint");
  if (optimizer != nullptr) {
    if (saved.isNone()) throw Error("checkpoint: it was saved without an optimizer.");
    load_optimizer_state(*optimizer, saved);
  }
  set_generators(snapshot, device_of(model), group);
  found.progress.epoch = entry_of(snapshot, "epoch", "checkpoint").toInt();
  return found.progress;
}

}  // namespace muster

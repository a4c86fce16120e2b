// Checkpoints: files that are whole or not there, that Python's torch.load reads, and reads of what
// Python's torch.save wrote.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "muster/process_group.h"

namespace muster {

struct SnapshotFile;    // Private.
struct SnapshotWriter;  // Private.

/// Writes `value` to a file beside `path`, syncs it, and renames it: a reader finds the old file or
/// the new one, and so does the machine after a power cut. Tensors may be on any device.
/// Called by ONE process for one path. Throws Error with the path and the system's reason.
/// (Python: torch.save, which does none of this.) Python reads it with torch.load(path).
void save_file(const std::filesystem::path& path, const c10::IValue& value);

/// What torch.save or save_file() wrote: tensors, numbers, texts, None, bool, and lists, tuples and
/// dicts of them. All tensors come on `map_location` (default: the CPU, wherever they were).
/// Any process may call it. Throws Error if the file is missing, torn, or not of this kind.
/// Nothing in the file is executed. Containers may be 100 deep, and not inside of themselves.
/// (Python: torch.load(path, map_location, weights_only=True).)
c10::IValue load_file(const std::filesystem::path& path,
                      c10::Device map_location = c10::Device(c10::kCPU));

/// Parameters and buffers by name, in Python's order; tensors are the module's own, not copies.
/// The module may be on the stack.
/// (Python: module.state_dict().)
c10::IValue module_state(const torch::nn::Module& module);
/// Copies values into the module. Throws Error, having changed nothing, that lists what is missing,
/// what is too much, and which shapes differ. (Python: module.load_state_dict(state, strict=True).)
void load_module_state(torch::nn::Module& module, const c10::IValue& state);

/// {"state": {0: {"step": …}, …}, "param_groups": [{"lr": …, "params": [0, …]}]}, as Python has it.
/// For Adam, AdamW and SGD; throws Error for others. (Python: optimizer.state_dict().)
c10::IValue optimizer_state(const torch::optim::Optimizer& optimizer);
/// The other way. The optimizer must have the same groups with as many parameters each, in the same
/// order; its learning rate and other options are set, too. Throws Error if it does not fit.
/// (Python: optimizer.load_state_dict(state).)
void load_optimizer_state(torch::optim::Optimizer& optimizer, const c10::IValue& state);

struct CheckpointOptions {
  std::filesystem::path folder;     // Made if it is missing. Rank 0's; others need not see it.
  std::string name = "checkpoint";  // Files: <name>-<epoch, 8 digits>.pt.
  int keep = 3;                     // So many of the last written stay; at least 1.
  ProcessGroup process_group;       // Default: all processes. Its rank 0 reads and writes.
  /// How long the others wait in save() until rank 0 has written the file. Every 30 s they say on
  /// stderr that they wait.
  std::chrono::milliseconds save_timeout = std::chrono::hours(1);
};

/// What training goes on from.
struct Progress {
  std::int64_t epoch = 0;            // Epochs done: the next one to run.
  std::filesystem::path file;        // Where it came from, on rank 0.
  std::vector<std::string> refused;  // Files that could not be used, and why. On rank 0.
};

/// Snapshots of a training run: model, optimizer, epoch, and each rank's random number generators.
///
///     muster::Checkpoints checkpoints({.folder = "snapshots"});
///     const auto done = checkpoints.load(*net, &optimizer, device);   // All ranks.
///     for (std::int64_t epoch = done ? done->epoch : 0; epoch < epochs; ++epoch) {
///       train(epoch);
///       checkpoints.save(*net, &optimizer, epoch + 1);                // All ranks.
///     }
///
/// The file is a dict: "model", "optimizer" (or None), "epoch", "order" (the n-th save to this
/// folder), "world_size", "rng" (a list with one dict for each rank: "cpu", and "cuda", "cuda1" …
/// for the GPUs that the model is on, which must be equally many on all ranks), and, under a
/// launcher that sets MUSTER_GENERATION, "run_id" and "generation": the round that wrote it.
///
/// Memory: rank 0 writes and reads one tensor at a time. In load() each rank has one tensor of the
/// file in memory beside its model and optimizer.
///
/// The newest is the one that was written last, not the one of the highest epoch: training that
/// starts again from an older snapshot, or from nothing, goes on from its own files from then on,
/// and the others go as new ones come. One job writes to one folder and name at a time.
class Checkpoints {
 public:
  /// Throws Error if keep < 1 or the name is empty or has a slash.
  explicit Checkpoints(CheckpointOptions options);

  /// ALL members call it. Rank 0 writes; everyone returns when the file is in place, or throws
  /// rank 0's Error, or Error if `save_timeout` runs out first. The others wait at the store and
  /// not in a collective, whose own timeout does not count then. `epoch`: how many are done. Throws
  /// Error if a process of a newer generation of the same run has written to the folder since this
  /// one called load() or save(): this process was replaced. Then all but the last `keep` files
  /// that load() could use are removed; files that it would refuse stay, for somebody to look at,
  /// and do not count. What a save that was killed has left (.<file>.<process>.partial) is removed,
  /// too: nobody else writes here.
  void save(const torch::nn::Module& model, const torch::optim::Optimizer* optimizer,
            std::int64_t epoch);

  /// ALL members call it. The newest whole file of rank 0's folder is used; one that is torn or
  /// foreign is passed over for the one before. Nothing if there is no folder or no file in it. The
  /// generators are set only if the number of ranks is the one that saved.
  /// Throws Error, on all ranks and with nothing changed, if the folder or a file in it cannot be
  /// read, if there are files and none can be used, or if model or optimizer of any rank do not fit
  /// to what the file has. Rank 0 has read the whole file once by then; should it fail to read it
  /// the second time, all ranks throw Error and the model is partly loaded.
  /// `map_location`: where each tensor is put before it is copied into the model.
  std::optional<Progress> load(torch::nn::Module& model, torch::optim::Optimizer* optimizer,
                               c10::Device map_location = c10::Device(c10::kCPU));

 private:
  void write_newest(const torch::nn::Module& model, const torch::optim::Optimizer* optimizer,
                    std::int64_t epoch, const c10::IValue& generators);
  void check_generation(const std::vector<SnapshotFile>& files, const SnapshotWriter& own) const;

  CheckpointOptions options_;
  std::optional<std::int64_t> newest_order_;  // Rank 0: of the last file that it read or wrote.
};

}  // namespace muster

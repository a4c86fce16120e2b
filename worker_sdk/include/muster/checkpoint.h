// Checkpoints: files that are either complete or do not exist. Python's torch.load reads them, and
// the SDK reads files of Python's torch.save.
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

/// Writes `value` to a file beside `path`, syncs it, and renames it to `path`. A reader finds the
/// old file or the new one, also after a power cut. Tensors may be on any device. Only ONE process
/// may call it for a path at a time. A text must have less than 4 GiB. Throws Error with the path
/// and the reason. Python reads the file with torch.load(path).
/// (Python: torch.save, which does not sync and rename.)
void save_file(const std::filesystem::path& path, const c10::IValue& value);

/// Reads a file of torch.save or save_file(): tensors, numbers, texts, None, bool, and lists,
/// tuples and dicts of them. All tensors are put on `map_location`, wherever they were saved.
/// Containers may be nested 100 deep, and must not contain themselves. Nothing in the file is
/// executed. Any process may call it. Throws Error if the file is missing, torn, or not of this
/// kind. (Python: torch.load(path, map_location, weights_only=True).)
c10::IValue load_file(const std::filesystem::path& path,
                      c10::Device map_location = c10::Device(c10::kCPU));

/// Returns the parameters and buffers by name, in Python's order. The tensors are the module's own,
/// not copies. The module may be on the stack. (Python: module.state_dict().)
c10::IValue module_state(const torch::nn::Module& module);
/// Copies the values into the module. If the names or the shapes differ, throws Error with a list
/// of the missing names, the unknown names and the different shapes, and changes nothing.
/// (Python: module.load_state_dict(state, strict=True).)
void load_module_state(torch::nn::Module& module, const c10::IValue& state);

/// Returns the optimizer's state in Python's form:
/// {"state": {0: {"step": …}, …}, "param_groups": [{"lr": …, "params": [0, …]}]}.
/// Supports Adam, AdamW and SGD. Throws Error for others. (Python: optimizer.state_dict().)
c10::IValue optimizer_state(const torch::optim::Optimizer& optimizer);
/// Loads a state into the optimizer, also the learning rate and the other options. The optimizer
/// must have the same parameter groups in the same order, with the same numbers of parameters.
/// Throws Error if the state does not fit. (Python: optimizer.load_state_dict(state).)
void load_optimizer_state(torch::optim::Optimizer& optimizer, const c10::IValue& state);

struct CheckpointOptions {
  std::filesystem::path folder;     // On rank 0, which creates it. Other ranks need no access.
  std::string name = "checkpoint";  // The files are <name>-<epoch, 8 digits>.pt.
  int keep = 3;                     // How many of the last written files stay. At least 1.
  ProcessGroup process_group;       // Default: all processes. Its rank 0 reads and writes files.
  /// How long the other ranks wait in save() until rank 0 has written the file. Every 30 s, they
  /// print on stderr that they wait.
  std::chrono::milliseconds save_timeout = std::chrono::hours(1);
};

/// The point from which the training continues.
struct Progress {
  std::int64_t epoch = 0;            // The number of finished epochs: the next epoch to run.
  std::filesystem::path file;        // The file that was loaded. On rank 0.
  std::vector<std::string> refused;  // Files that could not be used, with reasons. On rank 0.
};

/// Saves and loads the state of a training run: model, optimizer, epoch, and the random number
/// generators of each rank.
///
///     muster::Checkpoints checkpoints({.folder = "snapshots"});
///     const auto done = checkpoints.load(*net, &optimizer, device);   // All ranks.
///     for (std::int64_t epoch = done ? done->epoch : 0; epoch < epochs; ++epoch) {
///       train(epoch);
///       checkpoints.save(*net, &optimizer, epoch + 1);                // All ranks.
///     }
///
/// A file is a dict with these entries: "model", "optimizer" (or None), "epoch", "order" (the
/// number of the save in this folder), "world_size", and "rng". "rng" is a list with one dict for
/// each rank: "cpu", and "cuda", "cuda1" … for the GPUs that the model is on. All ranks must have
/// the same number of such GPUs. If the launcher sets MUSTER_GENERATION, the dict also has "run_id"
/// and "generation", which name the round that wrote the file.
///
/// Memory: rank 0 writes and reads one tensor at a time. In load(), each rank has one tensor of the
/// file in memory, in addition to its model and optimizer.
///
/// The newest file is the one that was written last, not the one with the highest epoch. A training
/// that starts again from an older file, or from nothing, later continues from its own files, and
/// its new files replace the others. Only one job at a time may write to a folder and name.
class Checkpoints {
 public:
  /// Throws Error if keep < 1 or the name is empty or has a slash.
  explicit Checkpoints(CheckpointOptions options);

  /// Rank 0 writes a file. ALL members must call it. All return when the file is in place, or throw
  /// rank 0's Error. `epoch` is the number of finished epochs.
  ///
  /// The other ranks wait at the store and not in a collective operation, so the timeout of the
  /// process group does not count. They throw Error if `save_timeout` passes first.
  ///
  /// Throws Error if a process of a newer generation of the same run has written to the folder
  /// since this process called load() or save(): this process was then replaced.
  ///
  /// Before the write, rank 0 removes the partial files of killed saves
  /// (.<file>.<process>.partial), because no other process writes to the folder. After the write,
  /// it removes all usable files except the last `keep`. Files that load() would refuse stay, so
  /// that a person can examine them, and do not count.
  void save(const torch::nn::Module& model, const torch::optim::Optimizer* optimizer,
            std::int64_t epoch);

  /// Loads the newest complete file of rank 0's folder. ALL members must call it. Skips torn and
  /// foreign files. Returns nothing if the folder or the files do not exist. Sets the random number
  /// generators only if the number of ranks is the same as in the save. Each tensor is put on
  /// `map_location` before it is copied into the model.
  ///
  /// Throws Error on all ranks, and changes nothing, if the folder or a file in it cannot be read,
  /// if there are files but none is usable, or if the file does not fit the model or the optimizer
  /// of any rank.
  ///
  /// Rank 0 reads the whole file once before the first change. If its second read of the file
  /// fails, all ranks throw Error, and the model is partly loaded.
  std::optional<Progress> load(torch::nn::Module& model, torch::optim::Optimizer* optimizer,
                               c10::Device map_location = c10::Device(c10::kCPU));

 private:
  void write_newest(const torch::nn::Module& model, const torch::optim::Optimizer* optimizer,
                    std::int64_t epoch, const c10::IValue& generators);
  void check_generation(const std::vector<SnapshotFile>& files, const SnapshotWriter& own) const;

  CheckpointOptions options_;
  std::optional<std::int64_t> newest_order_;  // "order" of the last file that rank 0 read or wrote.
};

}  // namespace muster

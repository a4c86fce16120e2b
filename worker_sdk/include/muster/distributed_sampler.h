// Each process's share of a data set: the same indices as Python's DistributedSampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>
#include <torch/types.h>

#include "muster/error.h"

namespace muster {

struct DistributedSamplerOptions {
  /// How many processes share the data, and which one this is. Default: the process group's.
  std::optional<int> replicas;
  std::optional<int> rank;
  bool shuffle = true;     // A new order for each epoch: call set_epoch().
  std::int64_t seed = 0;   // The same on all processes.
  bool drop_last = false;  // Leave the rest out, instead of repeating indices, for equal shares.
};

/// A sampler for torch::data::make_data_loader, and a plain list of indices for loops without one.
/// Every process must make it with the same size, seed and options, and set the same epochs.
/// Copies share the epoch, but not the position: the loader's copy follows set_epoch() of yours.
/// (Python: torch.utils.data.DistributedSampler, index by index.)
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// `size`: examples in the whole data set. Throws Error for a rank that is not below replicas,
  /// for no replicas, for an empty data set, and without process group if it is asked for one.
  explicit DistributedSampler(std::size_t size, DistributedSamplerOptions options = {});

  /// Before each epoch, on every process, before the data loader's iterator is made; otherwise all
  /// epochs have one order. Takes effect with the next reset() or indices().
  void set_epoch(std::int64_t epoch) { *epoch_ = epoch; }

  /// This process's indices of the current epoch, all processes' shares being equally long.
  std::vector<std::size_t> indices() const;

  /// Indices in each process's share. (Python: len(sampler).)
  std::size_t num_samples() const { return num_samples_; }

  // What torch::data calls.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void measure(std::size_t size);

  DistributedSamplerOptions options_;
  std::size_t size_ = 0;
  std::size_t replicas_ = 1;
  std::size_t rank_ = 0;
  std::size_t num_samples_ = 0;
  std::shared_ptr<std::int64_t> epoch_ = std::make_shared<std::int64_t>(0);
  std::vector<std::size_t> current_;  // Of the pass that next() walks through.
  std::size_t position_ = 0;
};

}  // namespace muster

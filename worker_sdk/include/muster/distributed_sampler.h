// Each process's share of a data set, with the same indices as Python's DistributedSampler.
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
  /// The number of processes that share the data, and the rank of this process among them. Default:
  /// those of the process group.
  std::optional<int> replicas;
  std::optional<int> rank;
  bool shuffle = true;     // Each epoch has a new order if set_epoch() is called.
  std::int64_t seed = 0;   // Must be the same in all processes.
  bool drop_last = false;  // Makes the shares equal by dropping indices, instead of repeating some.
};

/// A sampler for torch::data::make_data_loader. Loops without a data loader use indices().
/// Every process must construct it with the same size, seed and options, and set the same epochs.
/// Copies share the epoch, but not the position, so set_epoch() also works for the copy in a data
/// loader. (Python: torch.utils.data.DistributedSampler, which gives the same indices.)
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// `size` is the number of examples in the whole data set. Throws Error if the data set is empty,
  /// if there are no replicas, if the rank is not below the number of replicas, or if the options
  /// leave out one of these numbers and there is no process group.
  explicit DistributedSampler(std::size_t size, DistributedSamplerOptions options = {});

  /// Call it in every process before each epoch, and before the data loader's iterator is created.
  /// Otherwise all epochs use the same order. It takes effect with the next reset() or indices().
  void set_epoch(std::int64_t epoch) { *epoch_ = epoch; }

  /// This process's indices of the current epoch. The shares of all processes have the same length.
  std::vector<std::size_t> indices() const;

  /// The number of indices in each process's share. (Python: len(sampler).)
  std::size_t num_samples() const { return num_samples_; }

  // The interface for torch::data.
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
  std::vector<std::size_t> current_;  // The indices that next() returns in batches.
  std::size_t position_ = 0;
};

}  // namespace muster

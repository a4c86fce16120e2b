#include "muster/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <numeric>

#include <torch/serialize.h>

#include "muster/process_group.h"

namespace muster {
namespace {

// torch's own samplers do not use these keys, so load() fails with an archive of another sampler.
constexpr const char* kEpochKey = "distributed_sampler_epoch";
constexpr const char* kPositionKey = "distributed_sampler_position";

int from_group(const std::optional<int>& given, int of_group, const char* what) {
  if (given) return *given;
  if (is_initialized()) return of_group;
  throw Error(std::string("DistributedSampler: no ") + what +
              " given, and no process group to take it from: call init_process_group() first.");
}

std::int64_t read_number(torch::serialize::InputArchive& archive, const char* key) {
  torch::Tensor value;
  archive.read(key, value, /*is_buffer=*/true);
  return value.item<std::int64_t>();
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t size, DistributedSamplerOptions options)
    : options_(options) {
  const int replicas = from_group(options.replicas, get_world_size(), "number of replicas");
  const int rank = from_group(options.rank, get_rank(), "rank");
  if (replicas < 1 || rank < 0 || rank >= replicas)
    throw Error("DistributedSampler: rank " + std::to_string(rank) + " of " +
                std::to_string(replicas) + " replicas: expected 0 to replicas - 1.");
  replicas_ = static_cast<std::size_t>(replicas);
  rank_ = static_cast<std::size_t>(rank);
  measure(size);
}

void DistributedSampler::measure(std::size_t size) {
  if (size == 0) throw Error("DistributedSampler: an empty data set: expected one example.");
  size_ = size;
  num_samples_ = options_.drop_last ? size / replicas_ : (size + replicas_ - 1) / replicas_;
}

std::vector<std::size_t> DistributedSampler::indices() const {
  std::vector<std::size_t> order(size_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (options_.shuffle) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(options_.seed) +
                                                    static_cast<std::uint64_t>(*epoch_));
    const auto count = static_cast<std::int64_t>(size_);
    const torch::Tensor shuffled = torch::randperm(count, generator, torch::dtype(torch::kInt64));
    const auto* values = shuffled.const_data_ptr<std::int64_t>();
    std::copy(values, values + count, order.begin());
  }
  // Takes every replicas-th index of the order, and starts again at its begin if it is too short.
  std::vector<std::size_t> share(num_samples_);
  for (std::size_t i = 0; i < num_samples_; ++i)
    share[i] = order[(rank_ + i * replicas_) % size_];
  return share;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) measure(*new_size);
  current_ = indices();
  position_ = 0;
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  if (current_.empty() && position_ == 0) current_ = indices();
  if (position_ >= current_.size()) return std::nullopt;
  const std::size_t end = std::min(position_ + batch_size, current_.size());
  const auto first = current_.begin() + static_cast<std::ptrdiff_t>(position_);
  std::vector<std::size_t> batch(first, current_.begin() + static_cast<std::ptrdiff_t>(end));
  position_ = end;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write(kEpochKey, torch::tensor(*epoch_), /*is_buffer=*/true);
  archive.write(kPositionKey, torch::tensor(static_cast<std::int64_t>(position_)),
                /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  *epoch_ = read_number(archive, kEpochKey);
  current_ = indices();
  const auto position = static_cast<std::size_t>(read_number(archive, kPositionKey));
  if (position > current_.size())
    throw Error("DistributedSampler: position " + std::to_string(position) + " of " +
                std::to_string(current_.size()) + ": the archive is of another data set.");
  position_ = position;
}

}  // namespace muster

// The functions that differ between the releases of torch that the SDK supports (2.11 to 2.15).
// Private.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/types.h>

namespace c10d {
class Reducer;
}

namespace muster {

c10::intrusive_ptr<c10d::Work> all_gather_single(c10d::ProcessGroup& group, torch::Tensor output,
                                                 torch::Tensor input,
                                                 const c10d::AllgatherOptions& options);
c10::intrusive_ptr<c10d::Work> all_to_all_single(c10d::ProcessGroup& group, torch::Tensor output,
                                                 torch::Tensor input,
                                                 const c10d::AllToAllOptions& options);

/// Whether the group accepts tensors on this type of device.
bool has_backend(const c10d::ProcessGroup& group, c10::DeviceType device);

struct ReducerRequest {
  std::vector<torch::Tensor> parameters;
  std::vector<std::vector<std::size_t>> buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<bool> expect_sparse;
  std::int64_t bucket_bytes = 0;
  std::int64_t first_bucket_bytes = 0;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  std::unordered_map<std::size_t, std::string> names;
};
std::shared_ptr<c10d::Reducer> make_reducer(ReducerRequest request);

}  // namespace muster

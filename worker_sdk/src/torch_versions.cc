#include "torch_versions.h"

#include <algorithm>

#include <torch/csrc/distributed/c10d/reducer.hpp>

// These functions check the headers for the form of a function, and not torch's version number. So
// development builds between two releases work, too. They are templates, because only a template
// may name a function that does not exist.

namespace muster {
namespace {

template <class Group>
auto all_gather_of(Group& group, torch::Tensor& output, torch::Tensor& input,
                   const c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single(output, input, options); })
    return group.all_gather_single(output, input, options);  // 2.13 deprecates the other form.
  else
    return group._allgather_base(output, input, options);
}

template <class Group>
auto all_to_all_of(Group& group, torch::Tensor& output, torch::Tensor& input,
                   const c10d::AllToAllOptions& options) {
  std::vector<std::int64_t> equal_output;
  std::vector<std::int64_t> equal_input;
  if constexpr (requires {
                  group.all_to_all_single(output, input, equal_output, equal_input, options);
                })
    return group.all_to_all_single(output, input, equal_output, equal_input, options);  // 2.13.
  else
    return group.alltoall_base(output, input, equal_output, equal_input, options);
}

template <class Reducer, class... Common>
std::shared_ptr<Reducer> reducer_of(Common&&... common) {
  constexpr bool kSkipUnused = false;
  constexpr bool kPythonReducer = false;
  const std::vector<std::int64_t> default_caps;
  constexpr bool kBatchedCopy = false;
  if constexpr (std::is_constructible_v<Reducer, Common..., bool, bool, std::vector<std::int64_t>,
                                        bool>)  // 2.13.
    return std::make_shared<Reducer>(std::forward<Common>(common)..., kSkipUnused, kPythonReducer,
                                     default_caps, kBatchedCopy);
  else if constexpr (std::is_constructible_v<Reducer, Common..., bool, bool,
                                             std::vector<std::int64_t>>)
    return std::make_shared<Reducer>(std::forward<Common>(common)..., kSkipUnused, kPythonReducer,
                                     default_caps);
  else
    return std::make_shared<Reducer>(std::forward<Common>(common)..., kSkipUnused, kPythonReducer);
}

}  // namespace

c10::intrusive_ptr<c10d::Work> all_gather_single(c10d::ProcessGroup& group, torch::Tensor output,
                                                 torch::Tensor input,
                                                 const c10d::AllgatherOptions& options) {
  return all_gather_of(group, output, input, options);
}

c10::intrusive_ptr<c10d::Work> all_to_all_single(c10d::ProcessGroup& group, torch::Tensor output,
                                                 torch::Tensor input,
                                                 const c10d::AllToAllOptions& options) {
  return all_to_all_of(group, output, input, options);
}

bool has_backend(const c10d::ProcessGroup& group, c10::DeviceType device) {
  // hasBackendForDeviceType() exists only since 2.13.
  const auto devices = group.getDeviceTypes();
  return std::any_of(devices.begin(), devices.end(),
                     [&](const c10::Device& one) { return one.type() == device; });
}

std::shared_ptr<c10d::Reducer> make_reducer(ReducerRequest request) {
  return reducer_of<c10d::Reducer>(
      std::move(request.parameters), std::move(request.buckets), std::move(request.group),
      std::move(request.expect_sparse), request.bucket_bytes, request.find_unused_parameters,
      request.gradient_as_bucket_view, std::move(request.names), request.first_bucket_bytes);
}

}  // namespace muster

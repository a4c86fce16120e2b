// Rank 0's snapshot file on its way to all ranks, one tensor at a time. Private.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "muster/process_group.h"
#include "pickle_file.h"

namespace muster {

/// Tensors up to this size travel with the outline: generators' states, step counts, biases.
inline constexpr std::size_t kInlineTensorBytes = std::size_t{16} << 10;
/// Values of an outline, tensors not counted in detail: more than any optimizer has.
inline constexpr std::size_t kMaxOutlineValues = 10'000'000;

/// Every member learns the first failure among the members: throws Error with its text on all of
/// them, with the rank in front unless it is rank 0's own. Nothing if every `failure` is empty.
/// ALL members call it.
void share_failures(const std::string& failure, const ProcessGroup& group);

class SnapshotStream {
 public:
  /// Sends the outline of `file`, which is rank 0's and null on the others. ALL members call it;
  /// throws Error on all of them if rank 0 cannot send it.
  SnapshotStream(const PickleFile* file, ProcessGroup group);

  /// The snapshot, the same on all ranks. Small tensors are on the CPU, with their elements; large
  /// ones are on the device "meta" and get elements in receive().
  const c10::IValue& outline() const { return outline_; }
  /// `to` shall become a copy of the outline's tensor `from`, which is on the device "meta".
  void copy_later(const at::Tensor& from, at::Tensor to);
  /// Sends each large tensor, by way of `device`, and makes the copies. One tensor is in memory at
  /// a time. ALL members call it. Throws Error on all of them if rank 0 cannot read its file; some
  /// copies are made by then.
  void receive(c10::Device device);

 private:
  at::Tensor read_large(std::size_t index) const;

  const PickleFile* file_;
  ProcessGroup group_;
  c10::IValue outline_;
  std::vector<at::Tensor> in_file_;  // Rank 0: the file's large tensors, on "meta".
  std::vector<at::Tensor> large_;    // The outline's, in the same order.
  std::map<const c10::TensorImpl*, std::size_t> index_of_;  // Of an outline's large tensor.
  std::vector<std::vector<at::Tensor>> copies_;             // By that index.
};

}  // namespace muster

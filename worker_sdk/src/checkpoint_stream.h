// Sends rank 0's snapshot file to all ranks, one tensor at a time. Private.
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

/// Tensors up to this size are sent with the outline: states of generators, step counts, biases.
inline constexpr std::size_t kInlineTensorBytes = std::size_t{16} << 10;
/// The limit of values in an outline, where a tensor is one value. No optimizer has so many.
inline constexpr std::size_t kMaxOutlineValues = 10'000'000;

/// Throws Error on all members, with the text of the first `failure` by rank, if a member has one.
/// The text begins with the rank if this is not rank 0. Does nothing if every `failure` is empty.
/// ALL members must call it.
void share_failures(const std::string& failure, const ProcessGroup& group);

class SnapshotStream {
 public:
  /// Sends the outline of `file`, which only rank 0 has. It is null on the others. ALL members must
  /// call it. Throws Error on all of them if rank 0 cannot send the outline.
  SnapshotStream(const PickleFile* file, ProcessGroup group);

  /// The snapshot, the same on all ranks. Small tensors are on the CPU with their elements. Large
  /// tensors are on the device "meta", without elements.
  const c10::IValue& outline() const { return outline_; }
  /// Makes receive() copy the outline's tensor `from`, which is on the device "meta", into `to`.
  void copy_later(const at::Tensor& from, at::Tensor to);
  /// Sends each large tensor, puts it on `device`, and makes its copies. One tensor at a time is in
  /// memory. ALL members must call it. Throws Error on all of them if rank 0 cannot read its file.
  /// Some copies are then made already.
  void receive(c10::Device device);

 private:
  at::Tensor read_large(std::size_t index) const;

  const PickleFile* file_;
  ProcessGroup group_;
  c10::IValue outline_;
  std::vector<at::Tensor> in_file_;  // Rank 0: the file's large tensors, on "meta".
  std::vector<at::Tensor> large_;    // The outline's large tensors, in the same order.
  std::map<const c10::TensorImpl*, std::size_t> index_of_;  // Large tensor -> its index in large_.
  std::vector<std::vector<at::Tensor>> copies_;  // Targets of copy_later(), by index in large_.
};

}  // namespace muster

// torch.save's files: a zip archive with a pickle of protocol 2 and the tensors' bytes. Private.
//
// LibTorch's own pickle_save() writes types that torch.load refuses with weights_only=True, and its
// pickle_load() refuses what module.state_dict() is in Python.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace caffe2::serialize {
class PyTorchStreamReader;
class ReadAdapterInterface;
}  // namespace caffe2::serialize

namespace muster {

/// None, bool, whole numbers, doubles, texts, dense tensors; lists, tuples and dicts of them.
/// Throws Error for anything else.
std::vector<char> write_pickle_file(const c10::IValue& value);
/// The same, handed to `write` piece by piece: beside `value`, one tensor at most is in memory.
/// Stops at the first exception that `write` throws, and throws it.
void write_pickle_file(const c10::IValue& value,
                       const std::function<void(const void* data, std::size_t size)>& write);

/// Knows a closed list of opcodes and names, and executes nothing. Throws Error, or LibTorch's
/// exceptions, for what is torn or has anything else in it. Tensors come on the CPU.
c10::IValue read_pickle_file(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file);

/// A file of torch.save whose tensors are read one at a time.
class PickleFile {
 public:
  /// Reads the pickle and not the tensors: a small part of a large file. Throws as
  /// read_pickle_file() does.
  explicit PickleFile(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file);
  ~PickleFile();
  PickleFile(const PickleFile&) = delete;
  PickleFile& operator=(const PickleFile&) = delete;

  /// The value; its tensors are on the device "meta" and have no elements.
  const c10::IValue& outline() const { return outline_; }
  /// One of the outline's tensors with its elements, on the CPU. Reads its whole storage. Throws
  /// as read_pickle_file() does.
  at::Tensor read(const at::Tensor& outlined) const;

  struct Place {
    std::string record;
    std::int64_t offset = 0;  // Of the first element, in elements.
  };

 private:
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> archive_;
  std::map<const c10::TensorImpl*, Place> places_;  // Filled while the outline is read.
  c10::IValue outline_;
};

/// The same values as one pickle, which Python's pickle.loads() reads where torch is there.
std::string write_pickle(const c10::IValue& value);

/// A pickle alone, of any protocol up to Python's own default: None, bool, whole numbers up to 64
/// bits, doubles, texts; lists, tuples and dicts of them; and tensors, as write_pickle() has them.
/// Executes nothing. Throws Error, or LibTorch's exceptions, for anything else. The values keep no
/// reference to `pickle`.
c10::IValue read_pickle(std::string_view pickle);

}  // namespace muster

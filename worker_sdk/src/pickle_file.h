// Reads and writes files of torch.save: a zip archive with a pickle of protocol 2 and the tensors'
// bytes. Private.
//
// LibTorch's own functions do not serve: pickle_save() writes types that torch.load refuses with
// weights_only=True, and pickle_load() refuses the result of Python's module.state_dict().
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

/// Returns the bytes of a file. `value` may have None, bool, whole numbers, doubles, texts and
/// dense tensors, and lists, tuples and dicts of them. Throws Error for anything else.
std::vector<char> write_pickle_file(const c10::IValue& value);
/// Passes the bytes to `write` piece by piece. At most one tensor is in memory in addition to
/// `value`. If `write` throws an exception, stops and throws it.
void write_pickle_file(const c10::IValue& value,
                       const std::function<void(const void* data, std::size_t size)>& write);

/// Reads a file. Accepts only a closed list of opcodes and names, and executes nothing. Throws
/// Error, or LibTorch's exceptions, if the file is torn or has anything else in it. Tensors are on
/// the CPU.
c10::IValue read_pickle_file(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file);

/// A file of torch.save whose tensors are read one at a time.
class PickleFile {
 public:
  /// Reads only the pickle, which is a small part of a large file. Throws as read_pickle_file()
  /// does.
  explicit PickleFile(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file);
  ~PickleFile();
  PickleFile(const PickleFile&) = delete;
  PickleFile& operator=(const PickleFile&) = delete;

  /// The value. Its tensors are on the device "meta" and have no elements.
  const c10::IValue& outline() const { return outline_; }
  /// Reads one of the outline's tensors with its elements, on the CPU. Reads its whole storage.
  /// Throws as read_pickle_file() does.
  at::Tensor read(const at::Tensor& outlined) const;

  struct Place {
    std::string record;
    std::int64_t offset = 0;  // The position of the first element, in elements.
  };

 private:
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> archive_;
  std::map<const c10::TensorImpl*, Place> places_;  // Filled while the outline is read.
  c10::IValue outline_;
};

/// Writes such a value as one pickle. Python's pickle.loads() reads it if torch is installed.
std::string write_pickle(const c10::IValue& value);

/// Reads a pickle of any protocol up to Python's default. The value may have None, bool, whole
/// numbers of up to 64 bits, doubles and texts, lists, tuples and dicts of them, and tensors in the
/// form of write_pickle(). Executes nothing. Throws Error, or LibTorch's exceptions, for anything
/// else. The value keeps no reference to `pickle`.
c10::IValue read_pickle(std::string_view pickle);

}  // namespace muster

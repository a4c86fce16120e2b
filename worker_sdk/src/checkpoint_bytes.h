// Converts between the bytes of a checkpoint and its values. Private.
#pragma once

#include <ATen/core/ivalue.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/error.h"
#include "pickle_file.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace muster {

/// The end of the name of the file that save_file() writes first: .<file>.<process>.partial
inline constexpr const char* kPartialEnd = ".partial";

/// An error of the file system: the file could not be read or written. `number` is errno.
class SystemError : public Error {
 public:
  SystemError(const std::string& text, int number) : Error(text), number_(number) {}
  int number() const { return number_; }

 private:
  int number_;
};

class SnapshotParts;

/// A file of save_file() or torch.save whose tensors are read one at a time. Throws SystemError
/// with the path and the system's reason, and Error if the file is torn or foreign.
class OpenSnapshot {
 public:
  explicit OpenSnapshot(const std::filesystem::path& path);
  const PickleFile& file() const { return *file_; }
  /// Reads the whole file once, and keeps nothing. Throws SystemError if the system cannot read it.
  void check_readable() const;

 private:
  std::shared_ptr<SnapshotParts> parts_;
  std::unique_ptr<PickleFile> file_;
};

/// Returns a copy of the containers, with every tensor on `device`.
c10::IValue moved(const c10::IValue& value, c10::Device device);

/// Returns the entry `key` of a dict. Throws Error, with `where` in its text, if `value` is not a
/// dict or has no such entry.
c10::IValue entry_of(const c10::IValue& value, const std::string& key, const std::string& where);

/// Called for a tensor without elements: `to` must become a copy of `from` later.
using LaterCopy = std::function<void(const at::Tensor& from, at::Tensor to)>;

/// load_module_state() in two steps. This function throws the errors of load_module_state() and
/// changes nothing. It returns a function that copies the values and throws nothing. For tensors of
/// `state` on the device "meta", it calls `later` instead.
std::function<void()> prepare_module_state(torch::nn::Module& module, const c10::IValue& state,
                                           const LaterCopy& later);
/// load_optimizer_state() in two steps, as above.
std::function<void()> prepare_optimizer_state(torch::optim::Optimizer& optimizer,
                                              const c10::IValue& state, const LaterCopy& later);

}  // namespace muster

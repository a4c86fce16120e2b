// Between a checkpoint's bytes and its values. Private.
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

/// What save_file() writes to before the file has its name: .<file>.<process>.partial
inline constexpr const char* kPartialEnd = ".partial";

/// The file system's: whatever is in the file, it could not be read or written. `number`: errno.
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
  /// Reads the whole file once and keeps nothing: what the system cannot read is found here.
  void check_readable() const;

 private:
  std::shared_ptr<SnapshotParts> parts_;
  std::unique_ptr<PickleFile> file_;
};

/// A copy of the containers, with every tensor on `device`.
c10::IValue moved(const c10::IValue& value, c10::Device device);

/// "text" -> value; Error with `where` if `value` is no dict or has no such entry.
c10::IValue entry_of(const c10::IValue& value, const std::string& key, const std::string& where);

/// Called for a tensor without elements: `to` shall become a copy of `from` later.
using LaterCopy = std::function<void(const at::Tensor& from, at::Tensor to)>;

/// load_module_state() in two steps. The first one throws what load_module_state() would throw and
/// changes nothing; the function that it returns throws nothing and does the rest. Tensors of
/// `state` on the device "meta" are left to `later`.
std::function<void()> prepare_module_state(torch::nn::Module& module, const c10::IValue& state,
                                           const LaterCopy& later);
/// The same for load_optimizer_state().
std::function<void()> prepare_optimizer_state(torch::optim::Optimizer& optimizer,
                                              const c10::IValue& state, const LaterCopy& later);

}  // namespace muster

// Between a checkpoint's bytes and its values. Private.
#pragma once

#include <ATen/core/ivalue.h>

#include <filesystem>
#include <string>
#include <vector>

#include "muster/error.h"

namespace torch::nn {
class Module;
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

/// Throws SystemError with the path and the system's reason.
std::vector<char> read_bytes(const std::filesystem::path& path);
/// `path` is for the Error that it throws if the bytes are torn or foreign.
c10::IValue parse_bytes(const std::vector<char>& bytes, const std::filesystem::path& path);
/// The same of the file itself, without what its tensors hold: a small part of a large file.
/// Throws SystemError, too.
c10::IValue read_outline(const std::filesystem::path& path);
/// A copy of the containers, with every tensor on `device`.
c10::IValue moved(const c10::IValue& value, c10::Device device);

/// "text" -> value; Error with `where` if `value` is no dict or has no such entry.
c10::IValue entry_of(const c10::IValue& value, const std::string& key, const std::string& where);

/// Throws the Error that load_module_state() would throw; changes nothing.
void check_module_state(const torch::nn::Module& module, const c10::IValue& state);

}  // namespace muster

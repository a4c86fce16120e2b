// Questions about files, on storage that may not answer.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace muster {

/// Calls `ask` in a child process, and returns its answer. No value if the storage does not answer
/// within 5 s. The child process may then stay as long as the storage is silent.
std::optional<std::string> ask_storage(const std::function<std::string()>& ask);

}  // namespace muster

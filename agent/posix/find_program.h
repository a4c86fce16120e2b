// Where a worker's program is, as a shell would find it.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/result.h"

namespace muster {

/// A name with a slash is itself, else the first executable of that name in `path` (the value of
/// PATH). Errors, as execvp has them: no_such_file_or_directory; permission_denied if all that was
/// found may not be executed.
Result<std::string> find_program(const std::string& name, std::string_view path);

/// The first value of a variable in this environment, whose entries are "NAME=value"; nothing if it
/// is not set. Lives as long as `environment`.
std::optional<std::string_view> environment_value(const std::vector<std::string>& environment,
                                                  std::string_view name);

/// The value of PATH in this environment, or what it is without one: as Python's os.get_exec_path()
/// has it. Lives as long as `environment`.
std::string_view path_variable(const std::vector<std::string>& environment);

}  // namespace muster

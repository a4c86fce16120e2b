// Finds a worker's program as a shell does.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace muster {

/// Returns a name with a slash as it is, else the first executable of that name in `path` (the
/// value of PATH). Errors are those of execvp: no_such_file_or_directory; permission_denied if no
/// file of that name may be executed.
Result<std::string> find_program(const std::string& name, std::string_view path);

/// The first value of a variable in this environment, whose entries are "NAME=value"; no value if
/// the variable is not set. The result lives as long as `environment`.
std::optional<std::string_view> environment_value(const std::vector<std::string>& environment,
                                                  std::string_view name);

/// The value of PATH in this environment, or the default of Python's os.get_exec_path(). The result
/// lives as long as `environment`.
std::string_view path_variable(const std::vector<std::string>& environment);

}  // namespace muster

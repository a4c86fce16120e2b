// Where a worker's program is, as a shell would find it.

#pragma once

#include <string>
#include <string_view>

#include "rendezvous/core/result.h"

namespace muster {

/// A name with a slash is itself, else the first executable of that name in `path` (the value of
/// PATH). Errors, as execvp has them: no_such_file_or_directory; permission_denied if all that was
/// found may not be executed.
Result<std::string> find_program(const std::string& name, std::string_view path);

}  // namespace muster

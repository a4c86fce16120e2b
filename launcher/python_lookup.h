// Which Python runs the script.
//
// Pure: which files are programs is asked of a function that is handed in.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/argparse.h"
#include "launcher/flag_error.h"

namespace muster {

using IsExecutable = std::function<bool(const std::string& path)>;

/// In this order: PYTHON_EXEC; the active virtual environment's or conda environment's; the one
/// beside the torchrun that was called, argv0; python3 and then python in PATH.
Checked<std::string> find_python(const Environment& environment, std::string_view argv0,
                                 const IsExecutable& is_executable);

}  // namespace muster

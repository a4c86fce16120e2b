// Which Python runs the script, and the programs of muster's own that it runs: for --run-path, a
// fresh Python that runs the script with runpy.run_path, and for the plug-in of --logs-specs.
//
// Pure: which files are programs is asked of a function that is handed in. run_path.py and
// logs_specs.py beside this file are put into muster when that is built.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

using IsExecutable = std::function<bool(const std::string& path)>;

/// In this order: PYTHON_EXEC; the active virtual environment's or conda environment's; the one
/// beside the torchrun that was called, argv0; python3 and then python in PATH.
Checked<std::string> find_python(const Environment& environment, std::string_view argv0,
                                 const IsExecutable& is_executable);

/// Where the script stands in the command that plan_run_path makes.
inline constexpr std::size_t kRunPathScriptAt = 4;

/// --run-path: fills in the command and what belongs to it.
void plan_run_path(const Flags& flags, std::string python, AgentOptions& agent);

/// Whether a plug-in lays out the logs; "default" is the name of torch's own, which muster is as.
bool has_logs_plugin(const Flags& flags);

/// Fills in what belongs to the plug-in; `log` is planned otherwise. `python`: the workers'.
void plan_logs_specs(const Flags& flags, std::string python, LogOptions& log);

}  // namespace muster

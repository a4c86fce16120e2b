// Finds the Python that runs the script, and makes the workers' command and those for muster's own
// Python programs: run_path.py runs the script with runpy.run_path in a fresh Python (--run-path),
// logs_specs.py runs a plug-in (--logs-specs).
//
// Pure: the caller passes functions that say which files exist and which are executable. The build
// embeds run_path.py and logs_specs.py into muster.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// Returns the first of `paths` that passes a test; empty: none does.
using FirstOfPaths = std::function<std::string(const std::vector<std::string>& paths)>;

struct FoundPython {
  std::string path;
  std::string warning;  // Why the user may have meant another one; empty: there is no doubt.
};

/// Returns the first of: PYTHON_EXEC; the Python of the environment that the path argv0 leads into;
/// the first in PATH of: the environment in which argv0 was found, VIRTUAL_ENV, CONDA_PREFIX and
/// the user's own python3; of VIRTUAL_ENV or CONDA_PREFIX if PATH has neither, and its python3 is
/// in no environment; the Python beside torchrun, if argv0 is a torchrun; python3 in PATH; python
/// in PATH. The environment in which argv0 was found also goes before a python3 in no environment.
/// The environments of pipx and `uv tool` do not count. An environment without a Python that can be
/// run is passed over, with a warning, and there is a warning if the Python is not the user's own
/// `python`. `first_existing` also finds links that lead nowhere.
Checked<FoundPython> find_python(const Environment& environment, std::string_view argv0,
                                 const FirstOfPaths& first_executable,
                                 const FirstOfPaths& first_existing);

/// The index of the script in the command of --run-path.
inline constexpr std::size_t kRunPathScriptAt = 4;

/// Fills in the workers' command and the fields that depend on it. `python` is not used if the
/// script is a program by itself (--no-python without --run-path).
void plan_worker_command(const Flags& flags, const std::string& python, AgentOptions& agent);

/// Whether a plug-in lays out the logs. "default" names torch's own layout, which muster has built
/// in.
bool has_logs_plugin(const Flags& flags);

/// Fills in the options of the plug-in; the caller plans the rest of `log`. `python`: the Python of
/// the workers.
void plan_logs_specs(const Flags& flags, std::string python, LogOptions& log);

}  // namespace muster

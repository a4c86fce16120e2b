// --run-path: the worker's command, a fresh Python that runs the script with runpy.run_path.
//
// Pure. run_path.py beside this file is the program; it is put into muster when that is built.
#pragma once

#include <string>

#include "agent/core/agent_options.h"
#include "launcher/flags.h"

namespace muster {

/// Where the script stands in the command that plan_run_path makes.
inline constexpr std::size_t kRunPathScriptAt = 4;

/// Fills in the command and what belongs to it.
void plan_run_path(const Flags& flags, std::string python, AgentOptions& agent);

}  // namespace muster

// Detects a script that Python cannot open before anything starts. Under torchrun each worker fails
// on it by itself, and every restart is spent on it.
#pragma once

#include <optional>
#include <string>

#include "launcher/launch_plan.h"

namespace muster {

/// Calls facts.script_problem for the script of every local rank, with ${local_rank} replaced.
/// Checks nothing for -m, for --no-python, and for a script that is an option of Python ("-",
/// "-c").
Checked<void> check_script(const Flags& flags, const NodeFacts& facts, const AgentOptions& agent);

/// Checks the script on this machine: nothing if it is a readable file of any kind, or a directory
/// with a __main__ in it.
std::optional<std::string> script_problem(const std::string& script);

}  // namespace muster

// A script that Python cannot open is found out before anything starts: under torchrun each worker
// finds it by itself, and every restart is spent on it.
#pragma once

#include <optional>
#include <string>

#include "launcher/launch_plan.h"

namespace muster {

/// Asks facts.script_problem about the script, once ${local_rank} in it is replaced, of every local
/// rank. Nothing is checked for -m, --no-python, and words that are Python's own ("-", "-c").
Checked<void> check_script(const Flags& flags, const NodeFacts& facts, const AgentOptions& agent);

/// Asks this machine: nothing if `script` is a readable file of any kind, or a directory with a
/// __main__ in it.
std::optional<std::string> script_problem(const std::string& script);

}  // namespace muster

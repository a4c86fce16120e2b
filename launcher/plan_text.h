// The resolved plan, for people: what --dry-run prints, and what LOGLEVEL=INFO shows.
//
// Pure: nothing is made or started.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// --dry-run. What only the start decides is named instead, in angle brackets. `inherited`:
/// "NAME=value" for each variable that workers inherit. Fails as the start would.
Checked<std::string> dry_run_text(const AgentOptions& options,
                                  const std::vector<std::string>& inherited);

/// LOGLEVEL=INFO, in torchrun's shape: "Starting elastic_operator with launch configs:" and a line
/// for each of torchrun's fields.
std::vector<std::string> launch_text(const Flags& flags, const AgentOptions& options);

}  // namespace muster

// The resolved plan as text for people: for --dry-run and for LOGLEVEL=INFO.
//
// Pure: creates no file and starts no process.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flags.h"

namespace muster {

/// The text of --dry-run. A value that only a real start can determine is described in angle
/// brackets. `inherited`: "NAME=value" for each variable that workers inherit. `cluster`: what
/// --cluster has chosen, each with its source.
std::string dry_run_text(const AgentOptions& options, const std::vector<std::string>& inherited,
                         const std::vector<std::string>& cluster = {});

/// The lines for LOGLEVEL=INFO in torchrun's format: "Starting elastic_operator with launch
/// configs:", and one line for each of torchrun's fields.
std::vector<std::string> launch_text(const Flags& flags, const AgentOptions& options);

}  // namespace muster

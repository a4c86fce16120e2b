// What LOGLEVEL=INFO shows of the command line, in torchrun's shape.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flags.h"

namespace muster {

/// "Starting elastic_operator with launch configs:" and a line for each of torchrun's fields.
std::vector<std::string> launch_text(const Flags& flags, const AgentOptions& options);

}  // namespace muster

// Finds flags and variables that have no effect, and flags that certainly do not do what the user
// meant.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flags.h"

namespace muster {

/// Returns one sentence for each. `plan` is the plan of these flags, which has no errors.
std::vector<std::string> inert_flags(const Flags& flags, const Environment& environment,
                                     const AgentOptions& plan);

}  // namespace muster

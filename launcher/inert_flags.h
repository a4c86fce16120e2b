// Flags that change nothing, and those that surely do not do what was meant.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flags.h"

namespace muster {

/// One sentence for each, for the flags of a plan without errors.
std::vector<std::string> inert_flags(const Flags& flags, const Environment& environment,
                                     const AgentOptions& plan);

}  // namespace muster

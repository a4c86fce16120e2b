// --restart-policy and --progress-file.
#pragma once

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// After --max-restarts was read into `agent`: the policy's budget of failures takes its place.
/// Both may be given if they say the same.
Checked<void> plan_restarts(const Flags& flags, AgentOptions& agent);

}  // namespace muster

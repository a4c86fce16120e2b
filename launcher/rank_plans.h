// What each worker of this node would be started with, for --dry-run.
//
// Pure: nothing is made or started; what only the start decides is named instead, in angle
// brackets.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/dry_run.h"
#include "launcher/flag_error.h"

namespace muster {

/// `inherited`: "NAME=value" for each variable that workers inherit. Fails as the start would.
Checked<std::vector<RankPlan>> plan_ranks(const AgentOptions& options,
                                          const std::vector<std::string>& inherited);

}  // namespace muster

// A job on this node, whole: what is made before muster splits in two, the split, and the end.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"

namespace muster {

/// A sentence, if this system's kernel lacks what run_job() cannot do without.
std::optional<std::string> reason_not_to_run();

/// Runs the job of `options` to its end. The calling process, which must have one thread, becomes
/// the shim that owns the workers; the agent is a child of it (agent/posix/shim.h).
/// `environment`: what the workers inherit. Returns the exit status of the whole.
int run_job(const AgentOptions& options, const std::vector<std::string>& environment);

}  // namespace muster

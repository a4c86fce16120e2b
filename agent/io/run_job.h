// Runs a whole job on this node: prepares it, and splits muster into front, shim and agent.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"

namespace muster {

/// A sentence if the kernel lacks a feature that run_job() needs; else nothing.
std::optional<std::string> reason_not_to_run();

/// Calls `ask`, a question about files, in a child process, and returns its answer. No value if the
/// storage does not answer within 5 s. The child process may then stay as long as the storage is
/// silent.
std::optional<std::string> ask_storage(const std::function<std::string()>& ask);

/// Runs the job of `options` to its end. The calling process, which must have one thread, becomes
/// the front; the shim is its child, and the agent the shim's child (agent/posix/split.h). The
/// workers inherit `environment`. Returns the exit status of the whole.
int run_job(const AgentOptions& options, const std::vector<std::string>& environment);

}  // namespace muster

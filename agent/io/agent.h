// The agent of one node: from the rendezvous to the last worker's end.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"

namespace muster {

/// Runs the job of `options` over the shim at the other end of `shim_socket` (agent/posix/shim.h).
/// `environment`: what the workers inherit. Returns the exit status of the agent's process; that of
/// the whole is the shim's, which is told before.
int run_agent(const AgentOptions& options, std::vector<std::string> environment, int shim_socket);

}  // namespace muster

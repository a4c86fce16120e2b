// The agent of one node: from the rendezvous to the end of the last worker.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/io/run_files.h"

namespace muster {

/// What run_job() gives to the agent's process.
struct AgentContext {
  std::vector<std::string> environment;  // The environment that the workers inherit.
  RunFiles& run_files;                   // Created by the agent, and removed at the end.
  int socket = -1;                       // To the shim. The agent owns it.
  std::string cgroup;                    // The name of the workers' cgroup.
  int launcher_pid = 0;                  // The pid of the process that the user started.
};

/// Runs the agent until it has sent the outcome of the job to the shim, or the shim is gone. The
/// shim ignores the result.
int run_agent(const AgentOptions& options, AgentContext context);

}  // namespace muster

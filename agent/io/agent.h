// The agent of one node: from the rendezvous to the last worker's end.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/io/job_places.h"

namespace muster {

/// What the agent's process comes with.
struct AgentSurroundings {
  std::vector<std::string> environment;  // That the workers inherit.
  JobPlaces& places;                     // To be made, and tidied.
  int socket = -1;                       // To the shim; the agent's from now on.
  int launcher_pid = 0;                  // Of the process that the user started.
};

/// Runs the agent until it has told the shim how the job has ended, or the shim is gone. The
/// result means nothing to the shim.
int run_agent(const AgentOptions& options, AgentSurroundings surroundings);

}  // namespace muster

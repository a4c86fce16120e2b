// --dry-run: the resolved plan, for people.
//
// Pure. Who knows ranks, environments and log files (the agent's core) makes the RankPlans.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"

namespace muster {

/// One worker as it would be started.
struct RankPlan {
  int local_rank = 0;
  int global_rank = 0;
  std::vector<std::string> command;                // After macro substitution.
  std::map<std::string, std::string> environment;  // What the worker gets beyond the agent's own.
  std::string stdout_file;                         // Empty: inherited.
  std::string stderr_file;
  std::string error_file;  // Empty: none.
  std::string cpus;        // The CPUs that it is bound to, "0-7,16"; empty: not bound.
};

std::string dry_run_text(const AgentOptions& options, std::span<const RankPlan> ranks);

/// The words as one line that a POSIX shell reads back as these words.
std::string shell_quoted(std::span<const std::string> words);

}  // namespace muster

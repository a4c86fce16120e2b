// What the agent says about signals and processes.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent/core/agent_options.h"
#include "agent/core/supervisor.h"

namespace muster {

struct SignalFacts {
  Supervisor::State before;  // Of the job, when the signal came.
  bool is_first = true;      // Of those that came while workers were running or stopping.
  Duration shutdown_timeout{};
};

/// Whether a signal in this state stops workers.
bool has_workers(Supervisor::State state);
/// Logs that a signal came, and what follows from it.
void log_signal(int number, const SignalFacts& facts);
/// Logs that a process is left behind, because SIGKILL does not end it.
void log_left_behind(pid_t pid);
/// Logs that a worker has failed, and what follows from it.
void log_failure(const AgentOptions& options, const AnnounceFailure& failure, int pid);
/// "rank 3 was killed by SIGSEGV", for the other nodes.
std::string failed_rank_text(GlobalRank rank, const WorkerExit& exit);

}  // namespace muster

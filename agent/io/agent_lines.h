// Texts and log lines of the agent about signals, processes and the job's end.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent/core/agent_options.h"
#include "agent/core/supervisor.h"
#include "agent/sessions/rendezvous_session.h"

namespace muster {

struct SignalFacts {
  Supervisor::State before;  // The job's state when the signal came.
  bool is_first = true;      // The first one in a state with has_workers().
  Duration shutdown_timeout{};
};

/// Whether a signal in this state stops workers.
bool has_workers(Supervisor::State state);
/// Logs that a signal came, and what muster does about it.
void log_signal(int number, const SignalFacts& facts);
/// Logs that a process is left behind because SIGKILL does not end it.
void log_left_behind(pid_t pid);
/// Logs that a worker has failed, and whether a restart follows.
void log_failure(const AgentOptions& options, const AnnounceFailure& failure, int pid);
/// "rank 3 was killed by SIGSEGV", for the other nodes.
std::string failed_rank_text(GlobalRank rank, const WorkerExit& exit);
/// "node-2: rank 3 exited with 1": why the rendezvous has ended the job.
std::string session_end_text(const SessionEnd& end);
/// torchrun's line after the exit barrier.
std::string exit_barrier_text(Duration elapsed);

}  // namespace muster

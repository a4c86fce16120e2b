// muster's own lines about a job's progress. If torchrun has such a line, muster uses the same
// words and field names, because scripts search for them.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/node_notice.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_env.h"
#include "agent/core/worker_notice.h"
#include "base/time.h"

namespace muster {

/// "[default] Rendezvous complete for workers. Result:" and a line for each field.
std::vector<std::string> rendezvous_text(const AgentOptions& options, const RoundFacts& round);

/// "[default] Worker group FAILED. 2/3 attempts left; will restart worker group".
std::string restart_text(const AgentOptions& options, int restarts_left);

/// "failed (exitcode: 3) local_rank: 1 (pid: 123) of binary: sh", and the name of the signal.
std::string failure_text(const AgentOptions& options, const AnnounceFailure& failure, int pid);

/// "Done waiting for other agents. Elapsed: 0.25 seconds".
std::string exit_barrier_text(Duration elapsed);

// Lines that only muster has.
std::string restarting_text(const AgentOptions& options, int restarts_left);
/// With --restart-policy, before it has decided.
std::string restart_by_policy_text(const AgentOptions& options);
/// --restart-policy: the next attempt begins after `wait`.
std::string restart_wait_text(Duration wait);
std::string left_behind_text(int pid);
/// `workers`: how many got the signal from muster; -1: they had it already.
std::string forwarded_text(int signal, int workers);
/// "Received 15 death signal (SIGTERM)": torchrun's words, and the name.
std::string death_signal_text(int signal);
/// What follows that signal.
std::string stopping_text(int signal, Duration timeout);
/// This node goes. `left`: the time until workers that have not answered are stopped.
std::string node_goes_text(const NodeGoes& goes, Duration left);
/// Nodes of the job go, and the workers are told.
std::string notice_text(const WorkerNotice& notice, Duration left);

}  // namespace muster

// What the user gets when the job has not succeeded: the report, on stderr and in files.

#pragma once

#include <string>

#include "agent/core/agent_options.h"
#include "agent/core/end_cause.h"
#include "agent/core/job_outcome.h"
#include "agent/io/worker_group.h"
#include "agent/logs/log_pump.h"

namespace muster {

/// gethostname(); nothing is looked up in DNS.
std::string host_name();

/// The job is over: says how, and writes the files that were asked for, --failure-report and the
/// error file of our own (AgentOptions::own_error_file). Returns the exit code: for a worker's
/// failure torchrun's 1, or with --exit-code=propagate the first failure's.
int report_outcome(const AgentOptions& options, const JobOutcome& outcome, const WorkerGroup& group,
                   const FinishReport& logs);

/// It has ended before there were workers: writes the files.
void report_early_end(const AgentOptions& options, const EndCause& cause);

}  // namespace muster

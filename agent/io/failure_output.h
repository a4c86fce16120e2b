// What the user gets when the job has not succeeded: the report, on stderr and in files.

#pragma once

#include <string>

#include "agent/core/agent_options.h"
#include "agent/core/end_cause.h"
#include "agent/io/worker_group.h"
#include "agent/logs/log_pump.h"

namespace muster {

/// gethostname(); nothing is looked up in DNS.
std::string host_name();

/// A worker's failure ended the job: prints the report and writes the files that were asked for,
/// --failure-report and the error file of our own (AgentOptions::own_error_file). Returns the exit
/// code: torchrun's 1, or with --exit-code=propagate the first failure's.
int report_failure(const AgentOptions& options, const WorkerGroup& group, const FinishReport& logs);

/// Something else did: the files say so. `group`: the workers, if there were any.
void report_other_end(const AgentOptions& options, const EndCause& cause,
                      const WorkerGroup* group = nullptr, const FinishReport& logs = {});

}  // namespace muster

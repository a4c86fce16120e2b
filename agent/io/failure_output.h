// What the user gets when a worker's failure ended the job: the report, on stderr and in files.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/io/worker_group.h"
#include "agent/logs/log_pump.h"

namespace muster {

/// Prints the failure report and writes the files that were asked for: --failure-report, and the
/// error file that `environment` names for us (TORCHELASTIC_ERROR_FILE). Returns the exit code:
/// torchrun's 1, or with --exit-code=propagate the first failure's.
int report_failure(const AgentOptions& options, const WorkerGroup& group, const std::string& host,
                   const FinishReport& logs, const std::vector<std::string>& environment);

}  // namespace muster

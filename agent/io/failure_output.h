// What the user gets when the job has not succeeded: the report, on stderr and in files.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/earlier_attempts.h"
#include "agent/core/end_cause.h"
#include "agent/core/exit_report.h"
#include "agent/posix/shim.h"

namespace muster {

/// gethostname(); nothing is looked up in DNS.
std::string host_name();

/// The report of an attempt that began at `started_ms`.
ExitReport make_report(const AgentOptions& options, std::vector<ExplainedEnd> ends,
                       std::int64_t started_ms, std::optional<EndCause> cause = std::nullopt,
                       EarlierAttempts earlier = {});

/// Writes the files that were asked for, --failure-report and the error file of our own
/// (AgentOptions::own_error_file), and logs what cannot be written. The storage may make it wait.
void write_report_files(const AgentOptions& options, const ExitReport& report);

/// The job has ended before there were workers: writes the files.
void report_early_end(const AgentOptions& options, const EndCause& cause);

/// The agent is gone: writes the files as far as the shim, which calls this, knows how the workers
/// ended.
void report_lost_agent(const AgentOptions& options, const LostAgent& lost);

}  // namespace muster

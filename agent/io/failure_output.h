// The report of a job that has not succeeded, and the files that it is written to.

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

/// The result of gethostname(), without a look-up in DNS.
std::string host_name();

/// The report of an attempt that began at `started_ms`.
ExitReport make_report(const AgentOptions& options, std::vector<ExplainedEnd> ends,
                       std::int64_t started_ms, std::optional<EndCause> cause = std::nullopt,
                       EarlierAttempts earlier = {}, std::string advice = {});

/// Writes the files that were asked for: --failure-report, and muster's own error file
/// (AgentOptions::own_error_file). Logs which file cannot be written. May wait for storage.
void write_report_files(const AgentOptions& options, const ExitReport& report);

/// Writes the files for a job that ended before it had workers.
void report_early_end(const AgentOptions& options, const EndCause& cause);

/// Writes the files for a job that has lost one of muster's processes. Called by the process that
/// is left, through SplitOptions::report_lost_process.
void report_lost_process(const AgentOptions& options, const LostProcess& lost);

}  // namespace muster

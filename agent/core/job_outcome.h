// Turns the supervisor's Finish into what muster logs and writes to files, and how it exits.
#pragma once

#include <optional>
#include <string>

#include "agent/core/end_cause.h"
#include "agent/core/supervisor.h"

namespace muster {

struct JobOutcome {
  enum class LogLevel { Nothing, Warning, Error };
  LogLevel log_level = LogLevel::Nothing;
  std::string text;  // What is logged, at log_level.
  /// The cause for --failure-report and the error file. Empty if the job succeeded, or if a
  /// worker's failure is the cause.
  std::optional<EndCause> cause;
  /// The last line on stderr, where torchrun ends with an exception. Empty: no such line.
  std::string last_line;
  bool succeeded = false;        // If true, temporary files are removed.
  bool reports_failure = false;  // A worker failed: the exit code comes from the failure report.
  /// If reports_failure: the cause for these files if no worker's end shows a failure. Example: a
  /// worker that hung could not be killed, and ended with 0 later.
  std::optional<EndCause> cause_without_failure = {};
  int exit_code = 1;
  /// What the user should do, for the failure's summary. Empty: nothing is known.
  std::string advice = {};
  /// If reports_failure: the exit status in place of the failed worker's.
  std::optional<int> exit_code_of_job = {};
  int signal = 0;  // If not 0, muster ends by this signal, like a program that handles no signals.
};

struct OutcomeFacts {
  int launcher_pid = 0;              // The process that the user started.
  bool propagate_exit_code = false;  // --exit-code=propagate
  /// The signal is a SIGINT that --signals-to-handle leaves out. Python raises KeyboardInterrupt
  /// for it: the workers are stopped, and then the launcher dies of SIGINT.
  bool is_interrupt = false;
  /// With --log-on-full=fail, a text about the full disk. Then muster itself sent the signal.
  std::optional<std::string> logs_full;
};

JobOutcome job_outcome(const Finish& finish, const OutcomeFacts& facts);

}  // namespace muster

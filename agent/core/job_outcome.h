// From how the job ended, as the supervisor has it, to what is said, what programs find in files,
// and how muster exits.
#pragma once

#include <optional>
#include <string>

#include "agent/core/end_cause.h"
#include "agent/core/supervisor.h"

namespace muster {

struct JobOutcome {
  enum class Say { Nothing, Warning, Error };
  Say say = Say::Nothing;
  std::string text;
  /// For --failure-report and the error file; nothing if the job succeeded, or a worker's failure
  /// is the cause.
  std::optional<EndCause> cause;
  /// Below all else on stderr, as torchrun ends there with an exception; empty: nothing.
  std::string last_line;
  bool succeeded = false;        // What is temporary can go.
  bool reports_failure = false;  // A worker's: the failure report says the exit status.
  int exit_code = 1;
  int signal = 0;  // Not 0: muster ends by it, as a program does that handles none.
};

struct OutcomeFacts {
  int launcher_pid = 0;              // Of the process that the user started.
  bool propagate_exit_code = false;  // --exit-code=propagate
  /// --log-on-full=fail, and what is full: then the signal was our own.
  std::optional<std::string> logs_full;
};

JobOutcome job_outcome(const Finish& finish, const OutcomeFacts& facts);

}  // namespace muster

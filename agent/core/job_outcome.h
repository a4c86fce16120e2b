// From how the job ended, as the supervisor has it, to what is said and how muster exits.
#pragma once

#include <string>

#include "agent/core/supervisor.h"

namespace muster {

struct JobOutcome {
  enum class Say { Nothing, Warning, Error };
  Say say = Say::Nothing;
  std::string text;
  bool succeeded = false;        // What is temporary can go.
  bool reports_failure = false;  // A worker's: the failure report says the exit status.
  int exit_code = 1;
  int signal = 0;  // Not 0: muster ends by it, as a program does that handles none.
};

struct OutcomeFacts {
  bool propagate_exit_code = false;  // --exit-code=propagate
  bool logs_are_full = false;        // --log-on-full=fail: then the signal was our own.
};

JobOutcome job_outcome(const Finish& finish, const OutcomeFacts& facts);

}  // namespace muster

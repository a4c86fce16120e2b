// The command that a worker executes.
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "base/ids.h"

namespace muster {

/// The worker's argv. ${local_rank} is replaced in every word from options.first_argument on, by
/// the rules of Python's string.Template ("$$" becomes "$", unknown names stay). "--local-rank=N"
/// is inserted where the options ask for it. argv[0] may still need a look-up in PATH.
std::vector<std::string> worker_command(const AgentOptions& options, LocalRank local_rank);

/// The command for the log, without the user's arguments, which may contain secrets: "python3 -u
/// train.py (and 2 arguments)".
std::string shown_command(const AgentOptions& options);

/// A digest of what the workers run, for other nodes of the job: the script, module or program and
/// its arguments, without the path of Python, which may differ. It hides the arguments, but not
/// from somebody who tries likely ones.
std::string command_digest(const AgentOptions& options);

/// The failed program for a log line, in torchrun's words: "of binary: sh", the program as it was
/// given. With --run-path the program would always be Python, so the text is "of fn:
/// run_script_path (train.py)".
std::string failed_program_text(const AgentOptions& options);

}  // namespace muster

// Creates the directories and log files of one attempt, and looks up the workers' programs. Runs on
// the log thread, because storage may hang.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/log_plan.h"
#include "agent/io/run_files.h"
#include "agent/logs/log_file.h"
#include "base/result.h"

namespace muster {

struct AttemptFiles {
  AttemptLogPlan plan;
  std::map<std::string, std::shared_ptr<LogFile>> files;  // By path.
  std::map<std::string, OwnedFd> handles;     // LogFile::open_handle() of `files`, for the shim.
  LogFileOptions file_options;                // Of all log files.
  std::vector<Result<std::string>> programs;  // The path of each worker's program, or the error.
  std::optional<std::string> problem;         // Why no worker can be started, as a sentence.
};

struct AttemptFilesRequest {
  const AgentOptions& options;
  RunFiles& run_files;
  int restart_count = 0;
  std::vector<std::string> last_directories;  // Of the last attempt; empty ones are removed.
  LogContext log_context;                     // Without attempt_dir and the console's facts.
  std::optional<LogsDest> dest;               // Where a plug-in of --logs-specs wants the logs.
  LogFileOptions file_options;
  std::vector<std::string> programs;  // As the user named them, by local rank.
  std::string path;                   // The PATH that workers inherit.
};

/// If the run directory does not exist any more, this function first creates it again.
AttemptFiles create_attempt_files(const AttemptFilesRequest& request);

}  // namespace muster

// The directories and log files of one attempt, and where the workers' programs are: made and found
// on the log thread, because storage may hang.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/log_plan.h"
#include "agent/io/run_dir.h"
#include "agent/logs/log_file.h"
#include "rendezvous/core/result.h"

namespace muster {

struct AttemptFiles {
  AttemptLogPlan plan;
  std::map<std::string, std::shared_ptr<LogFile>> files;  // By path.
  std::vector<Result<std::string>> programs;              // The path of each worker's program.
  std::optional<std::string> problem;  // Why no worker can be started, as a sentence.
};

struct AttemptFilesRequest {
  const AgentOptions& options;
  const RunDir& run_dir;
  int restart_count = 0;
  std::vector<std::string> last_directories;  // Of the last attempt: removed if they are empty.
  LogSurroundings surroundings;  // The directory and what the console is are found out here.
  std::optional<LogsDest> dest;  // What a plug-in of --logs-specs has chosen.
  LogFileOptions file_options;
  std::vector<std::string> programs;  // Of the workers, by local rank, as the user named them.
  std::string path;                   // The PATH that workers inherit.
};

AttemptFiles make_attempt_files(const AttemptFilesRequest& request);

}  // namespace muster

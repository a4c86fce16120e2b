// The directories and log files of one attempt: made on the log thread, because storage may hang.
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

namespace muster {

struct AttemptFiles {
  AttemptLogPlan plan;
  std::map<std::string, std::shared_ptr<LogFile>> files;  // By path.
  std::optional<std::string> problem;  // Why no worker can be started, as a sentence.
};

struct AttemptFilesRequest {
  const AgentOptions& options;
  const RunDir& run_dir;
  int restart_count = 0;
  std::vector<std::string> last_directories;  // Of the last attempt: removed if they are empty.
  LogSurroundings surroundings;  // Without the directory of the attempt, which is chosen here.
  std::optional<LogsDest> dest;  // What a plug-in of --logs-specs has chosen.
  LogFileOptions file_options;
};

AttemptFiles make_attempt_files(const AttemptFilesRequest& request);

}  // namespace muster

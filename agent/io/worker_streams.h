// The pipes and files that workers get as stdout and stderr, as the log plan says.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/log_plan.h"
#include "agent/io/attempt_files.h"
#include "agent/logs/log_pump.h"
#include "rendezvous/core/result.h"

namespace muster {

class WorkerStreams {
 public:
  explicit WorkerStreams(const AgentOptions& options) : options_(options) {}

  /// For the next attempt.
  void begin(AttemptFiles made) { made_ = std::move(made); }

  /// What the worker of `log`, which is of the plan, gets in place of descriptors 1 and 2:
  /// `streams` has the bit of each that is in the result, which is the caller's to close.
  Result<std::vector<int>> open(LogPump& pump, const WorkerLogPlan& log, std::uint32_t& streams);

  /// Where what it writes to stdout and stderr goes to: a log file, a console, or nowhere (empty).
  std::array<std::string, 2> log_files(const WorkerLogPlan& log) const;

  /// When all are open: what else is to be shown.
  void show_more(LogPump& pump);

 private:
  Result<int> open_stream(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  Result<int> open_log_file(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  void follow(LogPump& pump, const ShownFile& shown, std::shared_ptr<LogFile> file = nullptr);

  const AgentOptions& options_;
  AttemptFiles made_;
};

}  // namespace muster

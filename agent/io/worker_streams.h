// The pipes and files that workers get as stdout and stderr, as the log plan says.

#pragma once

#include <array>
#include <cstdint>
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

  /// Adds what the worker of `log`, which is of the plan, gets in place of descriptors 1 and 2 to
  /// `fds`, and the bit of each to `streams`.
  boost::system::error_code open(LogPump& pump, const WorkerLogPlan& log, std::uint32_t& streams,
                                 std::vector<OwnedFd>& fds);

  /// Where what it writes to stdout and stderr goes to: a log file, a console, or nowhere (empty).
  std::array<std::string, 2> log_files(const WorkerLogPlan& log) const;

  /// When all are open: what else is to be shown.
  void show_more(LogPump& pump);

 private:
  Result<OwnedFd> open_stream(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  Result<OwnedFd> open_log_file(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  void follow(LogPump& pump, const ShownFile& shown, std::shared_ptr<LogFile> file);

  const AgentOptions& options_;
  AttemptFiles made_;
};

}  // namespace muster

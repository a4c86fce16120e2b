// The files and pipes that workers get as stdout and stderr, made as the log plan says.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/log_plan.h"
#include "agent/logs/log_pump.h"
#include "rendezvous/core/result.h"

namespace muster {

class WorkerStreams {
 public:
  WorkerStreams(const AgentOptions& options, LogPump& pump) : options_(options), pump_(pump) {}

  /// For the next attempt.
  boost::system::error_code begin(AttemptLogPlan plan);

  /// What the worker of `log`, which is of the plan, gets in place of descriptors 1 and 2:
  /// `streams` has the bit of each that is in the result, which is the caller's to close. If the
  /// disk is full, `log` says afterwards what was made instead.
  Result<std::vector<int>> open(WorkerLogPlan& log, std::uint32_t& streams);

  /// When all are open: what else is to be shown.
  void show_more();

 private:
  Result<int> open_stream(WorkerLogPlan& log, bool is_stderr);
  Result<int> open_log_file(WorkerLogPlan& log, bool is_stderr);
  Result<int> worker_end(int file, const std::string& path);
  Result<int> without_log_file(WorkerLogPlan& log, bool is_stderr, int error);
  void follow(const ShownFile& shown);

  const AgentOptions& options_;
  LogPump& pump_;
  AttemptLogPlan plan_;
  std::set<std::string> files_;  // Opened in this attempt: a plug-in may name one twice.
};

}  // namespace muster

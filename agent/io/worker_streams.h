// The pipes and files that workers get as stdout and stderr, according to the log plan.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/log_plan.h"
#include "agent/io/attempt_files.h"
#include "agent/logs/log_pump.h"
#include "base/result.h"

namespace muster {

class WorkerStreams {
 public:
  explicit WorkerStreams(const AgentOptions& options);

  /// Begins the next attempt, with its files.
  void begin(LogPump& pump, AttemptFiles made) {
    close_unused_files(pump);  // They are left if the start of the last attempt was given up.
    attempt_files_ = std::move(made);
  }

  /// Opens the descriptors that the worker of `log`, a part of the plan, gets as 1 and 2. Adds them
  /// to `fds`, and the bit of each to `streams`.
  boost::system::error_code open(LogPump& pump, const WorkerLogPlan& log, std::uint32_t& streams,
                                 std::vector<OwnedFd>& fds);

  /// Where the worker's stdout and stderr end up: a log file, a console, or nowhere (empty).
  std::array<std::string, 2> log_files(const WorkerLogPlan& log) const;

  /// After open(): moves the handles of the worker's log files, and the spare reader of its
  /// terminal, to `fds`, and sets the bit of each in `handles` (ShimRequest::handles). What several
  /// streams share has one handle, of the first stream.
  void move_handles(const WorkerLogPlan& log, std::uint32_t& handles, std::vector<OwnedFd>& fds);

  /// To be called when the streams of all workers are open: shows the other files of the plan.
  void show_more(LogPump& pump);

 private:
  Result<OwnedFd> open_stream(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  /// Not open, without an error: no terminal could be made, and the worker gets the console itself.
  Result<OwnedFd> open_tap(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  Result<OwnedFd> open_log_file(LogPump& pump, const WorkerLogPlan& log, bool is_stderr);
  /// Of each pipe of this attempt that leads to such a target.
  std::size_t size_of_pipe(StreamTarget target) const;
  void follow(LogPump& pump, const ShownFile& shown, std::shared_ptr<LogFile> file);
  /// The log thread closes the files that no worker got: closing may wait for storage, too.
  void close_unused_files(LogPump& pump);

  const AgentOptions& options_;
  const std::size_t user_pipe_pages_;
  AttemptFiles attempt_files_;
  OwnedFd spare_reader_;  // LogTerminal::spare_reader, from open() to move_handles().
};

}  // namespace muster

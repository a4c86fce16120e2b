// The end of an attempt and of the job: reads what the workers left, prints and writes the report,
// and waits until everything is shown.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/earlier_attempts.h"
#include "agent/core/exit_report.h"
#include "agent/core/job_outcome.h"
#include "agent/io/log_work.h"
#include "agent/io/worker_group.h"

namespace muster {

class JobEnd {
 public:
  JobEnd(const AgentOptions& options, LogWork& work) : options_(options), work_(work) {}

  using Ends = std::vector<ExplainedEnd>;
  /// `handler` is called on the loop for each attempt, with the ends of its workers.
  void on_ends(std::function<void(const Ends&)> handler) { on_ends_ = std::move(handler); }

  /// An attempt has ended and another one follows: keeps the cause of its end for the report.
  /// `done` is called when the log thread is ready for the next attempt, or is abandoned.
  void end_attempt(const WorkerGroup& group, int attempt, std::function<void()> done);

  /// Reads all output and error files of the last attempt. `done` gets the ends of its workers.
  void read_ends(const WorkerGroup& group, std::function<void(Ends)> done);

  /// Prints how the job ended and writes the files that were asked for, then calls `clean_up` on
  /// the log thread. `done` gets the exit code when everything is shown.
  void report(const JobOutcome& outcome, const WorkerGroup& group, const Ends& ends,
              std::function<void()> clean_up, std::function<void(int exit_code)> done);

 private:
  int print_outcome(const JobOutcome& outcome, const ExitReport& report);
  void flush_console(std::function<void()> done);

  const AgentOptions& options_;
  LogWork& work_;
  EarlierAttempts earlier_;
  std::function<void(const Ends&)> on_ends_;
};

}  // namespace muster

// From the last worker's end to muster's own: the last output, the report, the wait for readers.
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
  /// `seen` is called on the loop with how the workers of each attempt ended, once that is read.
  void on_ends(std::function<void(const Ends&)> seen) { seen_ = std::move(seen); }

  /// An attempt has ended and another one follows: keeps its cause for the report. `done`
  /// is called when the log thread has taken note.
  void end_attempt(const WorkerGroup& group, int attempt, std::function<void()> done);

  /// Reads all that the workers of the last attempt have left; `done` gets how they ended.
  void read_ends(const WorkerGroup& group, std::function<void(Ends)> done);

  /// Says how the job ended and writes the files that were asked for, then calls `clean_up` on the
  /// log thread. `done` gets the exit code when all is shown.
  void report(const JobOutcome& outcome, const WorkerGroup& group, const Ends& ends,
              std::function<void()> clean_up, std::function<void(int exit_code)> done);

  /// The job has ended before there were workers.
  void report_early_end(const EndCause& cause, std::function<void()> clean_up,
                        std::function<void()> done);

 private:
  int say(const JobOutcome& outcome, const ExitReport& report);
  void show_all(std::function<void()> done);

  const AgentOptions& options_;
  LogWork& work_;
  EarlierAttempts earlier_;
  std::function<void(const Ends&)> seen_;
};

}  // namespace muster

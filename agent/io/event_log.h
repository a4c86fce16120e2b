// Writes what happens to the worker group to stderr, in the form of agent/core/event_record.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/event_record.h"
#include "agent/core/exit_report.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_env.h"
#include "agent/core/worker_table.h"

namespace muster {

/// Writes only with --event-log-handler console: without it every call does nothing.
class EventLog : public WorkerObserver {
 public:
  /// `print` writes a line to stderr.
  EventLog(const AgentOptions& options, const std::string& hostname,
           std::function<void(std::string)> print);

  void rendezvous_begun(int restart_count);
  void rendezvous_completed();
  /// The workers have their ranks. The events after this one have the group's rank and size, too.
  void ranks_assigned(const RoundFacts& round);
  /// Workers may start in any order. Their events are written in the order of the ranks, as
  /// torchrun writes them.
  void worker_started(const RunningWorker& worker) override;
  /// The end of the run: writes one event for each worker of the last attempt, and one for the
  /// agent. `logs_full`: why --log-on-full=fail ended the run; then no signal came from outside.
  void finished(const Finish& action, const std::vector<ExplainedEnd>& ends,
                const std::optional<std::string>& logs_full);

 private:
  double since_mark_ms();
  EventContext& context();
  void write(std::string line) const { print_(std::move(line.append("\n"))); }
  void write_starts(bool all);
  void workers_ended(bool succeeded, const std::vector<ExplainedEnd>& ends);

  std::function<void(std::string)> print_;
  std::optional<EventContext> context_;  // Nothing if every call does nothing.
  AssignedRanks ranks_;
  std::map<LocalRank, int> held_starts_;  // Pids of workers whose event waits for lower ranks.
  int next_start_ = 0;
  Instant begun_;
  Instant mark_;  // When the duration in the next event begins.
};

}  // namespace muster

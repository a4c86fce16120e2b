// The writer behind agent/core/event_record.h: says on stderr what happens to the worker group.
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

/// With --event-log-handler console only; without it every call does nothing.
class EventLog : public WorkerObserver {
 public:
  /// `say` brings a line to stderr.
  EventLog(const AgentOptions& options, const std::string& hostname,
           std::function<void(std::string)> say);

  void rendezvous_begun(int restart_count);
  void rendezvous_completed();
  /// Workers have their ranks. After the event of that, the group's own are in every other.
  void ranks_assigned(const RoundFacts& round);
  /// The programs of an attempt may begin in any order; their events stand in the order of the
  /// ranks, as torchrun has them.
  void worker_started(const RunningWorker& worker) override;
  /// The end of the run: what became of each worker of the last attempt, and of the agent. With
  /// `logs_full` it was that, and no signal from outside, that ended it.
  void finished(const Finish& action, const std::vector<ExplainedEnd>& ends,
                const std::optional<std::string>& logs_full);

 private:
  double since_mark_ms();
  EventContext& context();
  void write(std::string line) const { say_(std::move(line.append("\n"))); }
  void write_starts(bool all);
  void workers_ended(bool succeeded, const std::vector<ExplainedEnd>& ends);

  std::function<void(std::string)> say_;
  std::optional<EventContext> context_;  // Nothing: no events are wanted.
  AssignedRanks ranks_;
  std::map<LocalRank, int> held_starts_;  // The pids of workers whose turn has not come.
  int next_start_ = 0;
  Instant begun_;
  Instant mark_;  // When what lasts began.
};

}  // namespace muster

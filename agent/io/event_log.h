// The writer behind agent/core/event_record.h: says on stderr what happens to the worker group.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/core/event_record.h"
#include "agent/core/exit_report.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_env.h"

namespace muster {

/// With --event-log-handler console only; without it every call does nothing. A stderr that cannot
/// be written loses events, and never the job.
class EventLog {
 public:
  EventLog(const AgentOptions& options, const std::string& hostname);

  void rendezvous_begun(int restart_count);
  void rendezvous_completed();
  /// Workers have their ranks. After the event of that, the group's own are in every other.
  void ranks_assigned(const RoundFacts& round);
  void worker_started(LocalRank rank, int pid);
  /// The end of the run: what became of each worker of the last attempt, and of the agent. With
  /// `logs_full` it was that, and no signal from outside, that ended it.
  void finished(const Finish& action, const std::vector<WorkerEnd>& ends,
                const std::optional<std::string>& logs_full);

 private:
  double since_mark_ms();
  EventContext& context();
  void write(std::string line) const;
  void workers_ended(bool succeeded, const std::vector<WorkerEnd>& ends);

  std::optional<EventContext> context_;  // Nothing: no events are wanted.
  AssignedRanks ranks_;
  Instant begun_;
  Instant mark_;  // When what lasts began.
};

}  // namespace muster

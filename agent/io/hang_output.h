// What people read when muster has looked where the workers stand.

#pragma once

#include <string>
#include <vector>

#include "agent/core/hang_detector.h"
#include "agent/io/stack_collector.h"

namespace muster {

/// "no output and no CPU time for 30 s", or "no report of progress for 30 s" of one that has
/// promised reports.
std::string idle_text(const IdleWorker& worker);

/// Logs where each worker stood and in which file its stacks are, and once what was in the way.
void log_evidence(const std::vector<StackCollector::Evidence>& evidence);

/// Chooses the one to end among those that were idle, and logs it.
LocalRank choose_hung_worker(const std::vector<IdleWorker>& idle,
                             const std::vector<StackCollector::Evidence>& evidence);

/// For the failure report, about the one that was chosen: "it hung: no output …; it stood at …".
std::string hang_text(LocalRank rank, const std::vector<IdleWorker>& idle,
                      const std::vector<StackCollector::Evidence>& evidence);

}  // namespace muster

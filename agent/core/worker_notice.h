// The notice that the agent sends to its workers: that they will be stopped, when, and why.
//
// Pure. docs/worker_channel.md describes the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"

namespace muster {

/// What follows when the workers have stopped.
enum class AfterNotice {
  Stop,     // The job ends.
  Shrink,   // The job goes on without the nodes that go.
  Restart,  // The job goes on, and no node is known to go: for example an operator restarts it.
};

struct WorkerNotice {
  // Both together fit into a line of the channel, however much of the reason is escaped.
  static constexpr std::size_t kMaxReasonBytes = 256;
  static constexpr std::size_t kMaxDoomedRanges = 90;

  Instant deadline{};
  std::string reason = {};  // Text from outside is allowed. Cut to kMaxReasonBytes in the line.
  bool doomed = true;       // This node goes.
  /// The first and the last global rank of each range that goes. Only a notice for the whole job
  /// has ranks. The line has the first kMaxDoomedRanges ranges.
  std::vector<std::pair<int, int>> doomed_ranks = {};
  AfterNotice follow = AfterNotice::Stop;
  /// Counts the notices of this agent, from 1 on.
  std::int64_t id = 0;
};

/// The line `preempt`, with its newline. It has at most WorkerLines::kMaxLineBytes bytes.
std::string preempt_line(const WorkerNotice& notice, Instant now);

}  // namespace muster

// Facts that may explain a worker's failure and that its own end does not show: a rank that ended
// before, memory that ran out.
//
// Pure. Each function returns one line for the report, or an empty text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/core/oom_evidence.h"
#include "agent/core/worker_end.h"

namespace muster {

/// The ranks of this node that had ended with 0 a while before `failed` did: the others may have
/// waited for them in vain. `ends`: of all workers of the attempt.
std::string early_ends_note(const std::vector<WorkerEnd>& ends, const WorkerEnd& failed);

/// The room in /dev/shm when a worker has failed.
struct SharedMemoryRoom {
  std::int64_t free_bytes = 0;
  std::int64_t size_bytes = 0;  // 0: there is no such file system.
};
/// For a worker that has got SIGBUS, which a full /dev/shm causes, and for any if it is full.
std::string shared_memory_note(const SharedMemoryRoom& room, const WorkerExit& exit);

/// For a worker that has failed by itself while the OOM killer has killed another process of the
/// job, such as a child of the worker.
std::string oom_child_note(const OomFacts& facts);

}  // namespace muster

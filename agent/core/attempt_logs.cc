#include "agent/core/attempt_logs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace muster {

void AttemptLogs::begin(int number, std::vector<WorkerLogs> workers) {
  // A plug-in of --logs-specs may choose the same files for each attempt. They were emptied.
  std::set<std::string> taken;
  for (const WorkerLogs& worker : workers)
    taken.insert({worker.out.path, worker.err.path});
  for (Attempt& earlier : attempts_)
    for (WorkerLogs& worker : earlier.workers)
      for (LogSource* source : {&worker.out, &worker.err})
        if (taken.count(source->path) > 0) source->path.clear();
  attempts_.push_back({number, std::move(workers)});
  if (attempts_.size() > kRemembered) attempts_.pop_front();
}

bool AttemptLogs::has(LocalRank rank) const {
  return !attempts_.empty() && rank.value >= 0 &&
         static_cast<std::size_t>(rank.value) < attempts_.back().workers.size();
}

std::vector<LogPart> AttemptLogs::parts(const NodeAsked& asked) const {
  MUSTER_CHECK(has(LocalRank{asked.local_rank}));
  const auto source_of = [&](const WorkerLogs& worker) {
    return asked.from_stderr ? worker.err : worker.out;
  };
  const WorkerLogs& worker = attempts_.back().workers[static_cast<std::size_t>(asked.local_rank)];
  if (source_of(worker).path.empty()) return {};
  // An offset in the log of an attempt that is not remembered means nothing.
  const auto begin = std::find_if(attempts_.begin(), attempts_.end(), [&](const Attempt& attempt) {
    return attempt.number == asked.attempt;
  });
  if (begin == attempts_.end())
    return {{source_of(worker), asked.attempt == 0 ? asked.offset : 0, newest()}};
  std::vector<LogPart> parts;
  for (auto attempt = begin; attempt != attempts_.end(); ++attempt)
    // In an earlier round the rank may have had another place on this node, or none.
    for (const WorkerLogs& one : attempt->workers)
      if (one.rank == worker.rank && !source_of(one).path.empty())
        parts.push_back({source_of(one), attempt == begin ? asked.offset : 0, attempt->number});
  return parts;
}

}  // namespace muster

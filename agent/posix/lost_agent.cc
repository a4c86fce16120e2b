#include "agent/posix/lost_agent.h"

#include <string.h>
#include <sys/wait.h>

namespace muster {

void WorkerRecords::started(int local_rank, int global_rank, pid_t pid) {
  if (alive_ == 0 && (deaths_ > 0 || workers_.contains(local_rank))) {
    workers_.clear();
    deaths_ = 0;
  }
  ++alive_;
  workers_[local_rank] = {.local_rank = local_rank, .global_rank = global_rank, .pid = pid};
}

void WorkerRecords::told(int local_rank, int signal, bool can_outlive, std::int64_t now_ms) {
  const auto found = workers_.find(local_rank);
  if (found == workers_.end()) return;
  LostAgent::Worker& worker = found->second;
  if (worker.sent.empty()) worker.signalled_ms = now_ms;
  worker.sent.push_back(signal);
  worker.can_outlive_signal = worker.can_outlive_signal || can_outlive;
}

void WorkerRecords::ended(int local_rank, const siginfo_t& info, std::int64_t now_ms) {
  --alive_;
  const auto found = workers_.find(local_rank);
  if (found == workers_.end()) return;
  LostAgent::Worker& worker = found->second;
  worker.has_ended = true;
  worker.killed = info.si_code != CLD_EXITED;
  worker.core_dumped = info.si_code == CLD_DUMPED;
  worker.status = info.si_status;
  worker.order = deaths_++;
  worker.died_ms = now_ms;
}

LostAgent WorkerRecords::describe(pid_t agent, const siginfo_t& status,
                                  const std::string& silence) const {
  LostAgent lost;
  lost.how = "the agent (pid " + std::to_string(agent) + ") ";
  if (!silence.empty())
    lost.how += silence;
  else if (status.si_pid == 0)
    lost.how += "stopped answering";
  else if (status.si_code == CLD_EXITED)
    lost.how += "ended with status " + std::to_string(status.si_status);
  else
    lost.how += "was killed by signal " + std::to_string(status.si_status) + " (" +
                ::strsignal(status.si_status) + ")";
  for (const auto& [rank, worker] : workers_)
    lost.workers.push_back(worker);
  return lost;
}

}  // namespace muster

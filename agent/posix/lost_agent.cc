#include "agent/posix/lost_agent.h"

#include <string.h>
#include <sys/wait.h>

#include "agent/posix/shim_reports.h"

namespace muster {

void WorkerRecords::started(const ShimReport& report, int global_rank) {
  if (alive_ == 0 && (deaths_ > 0 || workers_.contains(report.worker))) {
    workers_.clear();
    deaths_ = 0;
  }
  ++alive_;
  workers_[report.worker] = {
      .local_rank = {report.worker}, .rank = {global_rank}, .pid = report.pid};
}

void WorkerRecords::told(const ShimReport& report) {
  const auto found = workers_.find(report.worker);
  if (found != workers_.end()) note_signal(found->second, report);
}

void WorkerRecords::ended(const ShimReport& report) {
  --alive_;
  const auto found = workers_.find(report.worker);
  if (found != workers_.end()) note_exit(found->second, report, deaths_++);
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

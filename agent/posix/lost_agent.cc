#include "agent/posix/lost_agent.h"

#include <utility>
#include <vector>

#include "agent/core/exit_report.h"
#include "agent/posix/child_signals.h"
#include "agent/posix/shim_reports.h"

namespace muster {

void WorkerRecords::record_request(int local_rank, Place place) {
  if (requested_.contains(local_rank)) begin_attempt();
  requested_[local_rank] = place;
}

void WorkerRecords::record_start(const ShimReport& report) {
  WorkerEnd& worker = workers_[report.worker];
  worker = {.local_rank = {report.worker}, .rank = {requested_[report.worker].global_rank}};
  muster::record_start(worker, report);
}

void WorkerRecords::begin_attempt() {
  std::vector<ExplainedEnd> ends;
  ends.reserve(workers_.size());
  for (const auto& [rank, worker] : workers_)
    ends.push_back({worker});
  // The agent alone knows the texts of the causes: it has read the workers' output and error files.
  auto cause = ExitReport({}, std::move(ends)).cause_of(requested_.begin()->second.attempt);
  if (cause) earlier_.add(std::move(*cause));
  requested_.clear();
  workers_.clear();
  deaths_ = 0;
}

void WorkerRecords::record_signal(const ShimReport& report) {
  const auto found = workers_.find(report.worker);
  if (found != workers_.end()) record_sent_signal(found->second, report);
}

void WorkerRecords::record_end(const ShimReport& report) {
  const auto found = workers_.find(report.worker);
  if (found != workers_.end()) record_exit(found->second, report, deaths_++);
}

LostProcess WorkerRecords::lost_agent(pid_t agent, const siginfo_t& status,
                                      const std::string& reason) const {
  std::string how = "the agent (pid " + std::to_string(agent) + ") ";
  if (!reason.empty())
    how += reason;
  else if (status.si_pid == 0)
    how += "stopped answering";
  else
    how += describe_end(status);
  return job_at_the_end(muster::agent_lost(std::move(how)));
}

LostProcess WorkerRecords::lost_front(pid_t front) const {
  return job_at_the_end(muster::front_lost("the process that was started (pid " +
                                           std::to_string(front) +
                                           ") was killed or crashed; all workers were killed"));
}

LostProcess WorkerRecords::job_at_the_end(EndCause cause) const {
  LostProcess lost{.cause = std::move(cause)};
  for (const auto& [rank, worker] : workers_)
    lost.workers.push_back(worker);
  lost.earlier = earlier_;
  return lost;
}

std::string message_about(const LostProcess& lost) {
  return "muster: " + lost.cause.text + "; the workers were stopped\n" +
         (lost.earlier.empty() ? "" : lost.earlier.text() + "\n");
}

}  // namespace muster

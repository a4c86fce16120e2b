// What the shim records about the workers, for a report in case the agent is lost.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>

#include "agent/core/earlier_attempts.h"
#include "agent/posix/shim.h"
#include "agent/posix/shim_protocol.h"

namespace muster {

/// What the shim prints: how the agent was lost, and the causes of earlier attempts.
std::string message_about(const LostProcess& lost);

class WorkerRecords {
 public:
  /// The place of a worker in the job.
  struct Place {
    int global_rank = 0;
    int attempt = 0;  // TORCHELASTIC_RESTART_COUNT
  };
  /// The agent has requested the start of a worker. A second request for a local rank begins a new
  /// attempt. Of the attempt before, only the first failure is kept.
  void record_request(int local_rank, Place place);
  void record_start(const ShimReport& report);
  void record_signal(const ShimReport& report);
  void record_end(const ShimReport& report);

  /// `status` is what waitid has returned for the agent; its si_pid is 0 if the agent has not
  /// ended. `reason`: why the shim killed the agent; empty: `status` says how the agent ended.
  LostProcess lost_agent(pid_t agent, const siginfo_t& status, const std::string& reason) const;
  /// The process that the user started is gone.
  LostProcess lost_front(pid_t front) const;

 private:
  void begin_attempt();
  LostProcess job_at_the_end(EndCause cause) const;

  std::map<int, Place> requested_;    // In this attempt, by local rank.
  std::map<int, WorkerEnd> workers_;  // Those that were started in this attempt.
  int deaths_ = 0;
  EarlierAttempts earlier_;
};

}  // namespace muster

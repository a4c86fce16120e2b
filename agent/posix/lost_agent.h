// What the shim remembers of the workers, for the case that the agent cannot report them.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>

#include "agent/posix/shim.h"
#include "agent/posix/shim_protocol.h"

namespace muster {

class WorkerRecords {
 public:
  /// The first start after an attempt's end begins the next attempt's records.
  void started(const ShimReport& report, int global_rank);
  void told(const ShimReport& report);
  void ended(const ShimReport& report);

  /// `agent` is what waitid has said of the agent; its si_pid is 0 if the agent did not end.
  LostAgent describe(pid_t agent, const siginfo_t& status, const std::string& silence) const;

 private:
  std::map<int, WorkerEnd> workers_;  // By local rank.
  int alive_ = 0;
  int deaths_ = 0;
};

}  // namespace muster

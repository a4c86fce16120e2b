// Finds the jobs of this machine in /proc, without a daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "musterctl/process_texts.h"

namespace muster::ctl {

struct WorkerProcess {
  int pid = 0;
  std::optional<int> rank;  // Nothing: it has overwritten its environment, as setproctitle does.
  std::optional<int> local_rank;
  double cpu_seconds = 0;            // Of its session, with the processes that it has started.
  std::uint64_t resident_bytes = 0;  // Of its session, too.
  int processes = 1;
  std::string command;  // As command_text() shows it: without arguments.
};

/// --warm: the process that workers are forked from.
struct ZygoteProcess {
  int pid = 0;
  std::uint64_t resident_bytes = 0;
  std::optional<MemoryShares> shares;  // Nothing: they cannot be read.
};

struct LocalJob {
  int agent_pid = 0;  // 0: the agent is gone, or has not started yet.
  int shim_pid = 0;
  std::string run_id;  // Empty: the agent has just started, or its files may not be read.
  std::optional<int> restarts;
  std::optional<int> restarts_allowed;
  std::optional<std::int64_t> generation;
  std::optional<ZygoteProcess> zygote;
  std::vector<WorkerProcess> workers;  // By rank.
};

struct LocalJobs {
  std::vector<LocalJob> jobs;
  int unreadable = 0;  // Jobs of other users, whose workers' environment may not be read.
};

/// `proc`: /proc, or a test's own folder.
LocalJobs find_local_jobs(const std::string& proc = "/proc");

std::string local_jobs_text(const LocalJobs& jobs);
std::string local_jobs_json(const LocalJobs& jobs);

}  // namespace muster::ctl

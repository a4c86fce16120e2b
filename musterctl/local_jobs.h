// The jobs of this machine, found in /proc: no daemon is asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::ctl {

struct WorkerProcess {
  int pid = 0;
  std::optional<int> rank;
  std::optional<int> local_rank;
  double cpu_seconds = 0;            // Of its session: what it has started, too.
  std::uint64_t resident_bytes = 0;  // The same.
  int processes = 1;
  std::string command;
};

struct LocalJob {
  int agent_pid = 0;  // 0: it is gone, or not there yet.
  int shim_pid = 0;
  std::string run_id;  // Empty: the agent has just begun, or may not be looked at.
  std::optional<int> restarts;
  std::optional<int> restarts_allowed;
  std::optional<std::int64_t> generation;
  std::vector<WorkerProcess> workers;  // By rank.
};

struct LocalJobs {
  std::vector<LocalJob> jobs;
  int unreadable = 0;  // Jobs of other users, whose workers' environment may not be read.
};

/// `proc` is /proc; a test has its own.
LocalJobs find_local_jobs(const std::string& proc = "/proc");

std::string local_jobs_text(const LocalJobs& jobs);
std::string local_jobs_json(const LocalJobs& jobs);

}  // namespace muster::ctl

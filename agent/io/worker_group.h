// The workers of one attempt: what they are started with, and how they ended.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/exit_report.h"
#include "agent/core/log_plan.h"
#include "agent/core/worker_env.h"
#include "agent/io/oom_watch.h"
#include "agent/io/run_dir.h"
#include "agent/logs/log_pump.h"
#include "agent/posix/shim_protocol.h"

namespace muster {

class WorkerGroup {
 public:
  struct Surroundings {
    std::vector<std::string> environment;  // That the workers inherit.
    std::string job_token;                 // Marks them and their descendants.
    std::string host;
    std::string channel;  // WorkerIdentity::channel
  };
  WorkerGroup(const AgentOptions& options, Surroundings surroundings, LogPump& pump);

  /// A request to the shim with its descriptors, which are the receiver's to close.
  struct Start {
    ShimRequest request;
    std::vector<int> fds;
  };
  /// Why no worker can be started: for people.
  struct NotStarted {
    LocalRank rank;
    std::string reason;
  };
  /// Forgets the last attempt and makes everything that the next one needs: directories, files,
  /// pipes, environments. Either all workers can be started or none is.
  boost::system::result<std::vector<Start>, NotStarted> prepare(const RoundFacts& round,
                                                                const RunDir& run_dir);

  void started(const ShimReport& report);
  void ended(const ShimReport& report);
  /// It lived, and was sent a signal by muster.
  void told(const ShimReport& report);
  /// Why muster ends this one, for the failure report: "it hung: …".
  void explain(LocalRank rank, std::string why) { at(rank).end.ended_because = std::move(why); }

  int pid(LocalRank rank) const { return at(rank).end.pid; }
  const std::string& program() const { return program_; }
  /// Its directory of this attempt; empty: none.
  const std::string& log_dir(LocalRank rank) const { return at(rank).log.dir; }

  /// How each of them ended, with what it left: error files, traces of the OOM killer.
  std::vector<WorkerEnd> ends(std::int64_t* started_ms) const;

 private:
  struct Member {
    WorkerEnd end;
    WorkerLogPlan log;
  };
  boost::system::result<Start, NotStarted> prepare_worker(const RoundFacts& round, Member& member,
                                                          const AttemptLogPlan& plan);
  Result<std::vector<int>> open_streams(Member& member, const AttemptLogPlan& plan,
                                        std::uint32_t& streams);
  Result<int> open_stream(Member& member, const AttemptLogPlan& plan, bool is_stderr);
  Result<int> open_log_file(Member& member, const AttemptLogPlan& plan, bool is_stderr);
  Result<int> worker_end(int file, const std::string& path);
  Result<int> without_log_file(Member& member, bool is_stderr);
  Member& at(LocalRank rank) { return members_[static_cast<std::size_t>(rank.value)]; }
  const Member& at(LocalRank rank) const { return members_[static_cast<std::size_t>(rank.value)]; }

  const AgentOptions& options_;
  Surroundings surroundings_;
  LogPump& pump_;
  std::vector<Member> members_;
  std::string program_;  // As found in PATH.
  std::int64_t started_ms_ = 0;
  int deaths_ = 0;
  OomWatch oom_watch_;
};

/// Milliseconds since the epoch, by the wall clock: for people, never compared with a deadline.
std::int64_t wall_clock_ms();

}  // namespace muster

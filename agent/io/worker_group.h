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
#include "agent/io/worker_streams.h"
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
  /// Why a worker cannot be started: for people.
  struct NotStarted {
    std::string reason;
  };
  /// What a plug-in of --logs-specs is told before: announced_env() for each worker.
  boost::system::result<std::vector<Variables>, NotStarted> announce(const RoundFacts& round) const;
  /// Forgets the last attempt and makes what the workers of the next one share: the directories.
  /// `dest`: where a plug-in wants the logs; null: there is none.
  std::optional<NotStarted> prepare(const RoundFacts& round, const RunDir& run_dir,
                                    const LogsDest* dest);
  /// Makes everything that this worker needs: files, pipes, its environment. One after the other,
  /// local rank 0 first.
  boost::system::result<Start, NotStarted> make_start(LocalRank rank);
  /// All starts are made.
  void starts_made() { streams_.show_more(); }

  void started(const ShimReport& report);
  /// Why it could not be started, as a sentence.
  std::string start_failure(const ShimReport& report) const;
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
  Member& at(LocalRank rank) { return members_[static_cast<std::size_t>(rank.value)]; }
  const Member& at(LocalRank rank) const { return members_[static_cast<std::size_t>(rank.value)]; }

  const AgentOptions& options_;
  Surroundings surroundings_;
  WorkerStreams streams_;
  RoundFacts round_;
  std::vector<Member> members_;
  std::string program_;  // As found in PATH.
  std::int64_t started_ms_ = 0;
  int deaths_ = 0;
  OomWatch oom_watch_;
};

/// Milliseconds since the epoch, by the wall clock: for people, never compared with a deadline.
std::int64_t wall_clock_ms();

}  // namespace muster

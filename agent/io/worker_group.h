// The workers of one attempt: what they are started with, and how they ended.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/exit_report.h"
#include "agent/core/log_plan.h"
#include "agent/core/worker_env.h"
#include "agent/io/log_work.h"
#include "agent/io/oom_watch.h"
#include "agent/io/run_dir.h"
#include "agent/io/stack_collector.h"
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
  /// `on_full`: LogFileOptions::on_full
  WorkerGroup(const AgentOptions& options, Surroundings surroundings,
              std::function<void(std::string)> on_full);
  void set_channel(std::string path) { surroundings_.channel = std::move(path); }

  /// A request to the shim with its descriptors.
  struct Start {
    ShimRequest request;
    std::vector<OwnedFd> fds;
  };
  /// Why a worker cannot be started: for people.
  struct NotStarted {
    std::string reason;
  };
  /// What a plug-in of --logs-specs is told before: announced_env() for each worker.
  boost::system::result<std::vector<Variables>, NotStarted> announce(const RoundFacts& round) const;
  /// Forgets the last attempt, and lets the log thread make the directories and files of the next
  /// one. `dest`: where a plug-in wants the logs. `done` is told why no worker can be started, or
  /// nothing.
  void prepare(const RoundFacts& round, const RunDir& run_dir, std::optional<LogsDest> dest,
               LogWork& work, std::function<void(std::optional<NotStarted>)> done);
  /// Makes everything that this worker needs: pipes and its environment. One after the other, local
  /// rank 0 first.
  boost::system::result<Start, NotStarted> make_start(LogPump& pump, LocalRank rank);
  /// All starts are made.
  void starts_made(LogPump& pump) { streams_.show_more(pump); }

  void started(const ShimReport& report);
  /// Why it could not be started, as a sentence.
  std::string start_failure(const ShimReport& report) const;
  void ended(const ShimReport& report);
  /// It lived, and was sent a signal by muster.
  void told(const ShimReport& report);
  /// Why muster ends this one, for the failure report: "it hung: …".
  void explain(LocalRank rank, std::string why) { at(rank).end.ended_because = std::move(why); }

  /// Whether there is such a worker in this attempt.
  bool has(LocalRank rank) const {
    return rank.value >= 0 && static_cast<std::size_t>(rank.value) < members_.size();
  }
  int pid(LocalRank rank) const { return at(rank).end.pid; }
  /// Why muster has ended it; or empty.
  const std::string& ended_because(LocalRank rank) const { return at(rank).end.ended_because; }
  /// The file that gets one of its streams; empty: none does.
  const std::string& log_file(LocalRank rank, bool is_stderr) const {
    return is_stderr ? at(rank).log.err.file : at(rank).log.out.file;
  }
  /// Those that run, for who wants to see where they stand. Null: none do.
  static std::vector<StackCollector::Target> living(const WorkerGroup* group);
  const std::string& program() const { return program_; }

  /// How each of them ended, with the traces of the OOM killer; error files are not read yet.
  std::vector<ExplainedEnd> ends() const;
  /// When the attempt began, by the wall clock.
  std::int64_t started_ms() const { return started_ms_; }

 private:
  struct Member {
    ExplainedEnd end;
    WorkerLogPlan log;
  };
  Member& at(LocalRank rank) { return members_[static_cast<std::size_t>(rank.value)]; }
  const Member& at(LocalRank rank) const { return members_[static_cast<std::size_t>(rank.value)]; }

  void adopt(AttemptFiles made);

  const AgentOptions& options_;
  Surroundings surroundings_;
  std::function<void(std::string)> on_full_;
  WorkerStreams streams_;
  RoundFacts round_;
  std::vector<Member> members_;
  std::vector<std::string> directories_;       // Of the attempt, made by prepare().
  std::vector<Result<std::string>> programs_;  // Where each worker's is.
  std::string program_;                        // As found in PATH.
  std::int64_t started_ms_ = 0;
  int deaths_ = 0;
  OomWatch oom_watch_;
};

/// Reads the error file of each, whose path it has, and of those that failed the end of their
/// stderr's file; on the log thread, because storage may hang.
void read_error_files(std::vector<ExplainedEnd>& ends);

/// Milliseconds since the epoch, by the wall clock: for people, never compared with a deadline.
std::int64_t wall_clock_ms();

}  // namespace muster

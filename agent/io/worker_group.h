// The workers of one attempt: how each of them is started, and how it ended.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/attempt_logs.h"
#include "agent/core/exit_report.h"
#include "agent/core/failure_notes.h"
#include "agent/core/log_plan.h"
#include "agent/core/worker_env.h"
#include "agent/io/log_work.h"
#include "agent/io/oom_watch.h"
#include "agent/io/run_files.h"
#include "agent/io/stack_collector.h"
#include "agent/io/worker_streams.h"
#include "agent/logs/log_pump.h"
#include "agent/posix/shim_protocol.h"

namespace muster {

class WorkerGroup {
 public:
  struct Context {
    std::vector<std::string> environment;  // The environment that the workers inherit.
    std::string job_token;                 // Marks the workers and their descendants (MUSTER_JOB).
    std::string host;
    std::string channel;  // WorkerIdentity::channel
  };
  /// `on_full` becomes LogFileOptions::on_full.
  WorkerGroup(const AgentOptions& options, Context context,
              std::function<void(std::string)> on_full);
  /// From now on workers get the paths of the channel and of the timers' pipe of these files.
  void adopt(const RunFiles& files);

  /// A start request to the shim, and the descriptors that go with it.
  struct Start {
    ShimRequest request;
    std::vector<OwnedFd> fds;
  };
  /// Why a worker cannot be started: a sentence for the user.
  struct NotStarted {
    std::string reason;
  };
  /// announced_env() of each worker: the variables that a plug-in of --logs-specs gets.
  std::vector<Variables> announce(const RoundFacts& round) const;
  /// Forgets the last attempt, and has the log thread create the directories and files of the next
  /// one. `dest`: where a plug-in of --logs-specs wants the logs. `done` gets the reason why no
  /// worker can be started, or nothing.
  void prepare(const RoundFacts& round, RunFiles& run_files, std::optional<LogsDest> dest,
               LogWork& work, std::function<void(std::optional<NotStarted>)> done);
  /// Creates the pipes and the environment of one worker. To be called for one local rank after the
  /// other, from 0.
  boost::system::result<Start, NotStarted> make_start(LogPump& pump, LocalRank rank);
  /// To be called after the last make_start(): shows the other files of the log plan.
  void finish_starts(LogPump& pump) { streams_.show_more(pump); }

  void started(const ShimReport& report);
  /// Why the worker of `report` could not be started, as a sentence.
  std::string start_failure(const ShimReport& report) const;
  void ended(const ShimReport& report);
  /// Records that muster sent a signal to a worker that was alive.
  void record_signal(const ShimReport& report);
  /// Records why muster ends this worker, for the failure report: "it hung: …".
  void explain(LocalRank rank, std::string why) { at(rank).end.ended_because = std::move(why); }

  /// early_ends_note() for this worker, which has failed.
  std::string early_ends(LocalRank rank) const;
  int pid(LocalRank rank) const { return at(rank).end.pid; }
  /// Why muster ended this worker; empty if muster did not.
  const std::string& ended_because(LocalRank rank) const { return at(rank).end.ended_because; }
  /// The log files of this attempt's workers, by local rank.
  std::vector<WorkerLogs> logs() const;
  /// The running workers, whose stacks can be collected.
  std::vector<StackCollector::Target> living() const;
  const std::string& program() const { return program_; }
  /// Whether a worker's output goes to a console that has no room: nobody reads it, or not fast
  /// enough.
  bool console_is_full() const;

  /// How each worker ended, with evidence of the OOM killer. The error files are not read yet.
  std::vector<ExplainedEnd> ends() const;
  /// When the attempt began, by the wall clock.
  std::int64_t started_ms() const { return started_ms_; }

 private:
  struct Member {
    ExplainedEnd end;
    WorkerLogPlan log;
    WorkerLogs files;
  };
  Member& at(LocalRank rank) { return members_[static_cast<std::size_t>(rank.value)]; }
  const Member& at(LocalRank rank) const { return members_[static_cast<std::size_t>(rank.value)]; }

  void adopt(LogPump& pump, AttemptFiles made);

  const AgentOptions& options_;
  Context context_;
  std::function<void(std::string)> on_full_;
  WorkerStreams streams_;
  RoundFacts round_;
  std::vector<Member> members_;
  std::vector<std::string> directories_;       // Of the attempt; prepare() has them created.
  std::vector<Result<std::string>> programs_;  // The path of each worker's program.
  std::string program_;                        // The path of the last one started.
  std::int64_t started_ms_ = 0;
  int deaths_ = 0;
  std::optional<SharedMemoryRoom> shared_memory_;  // After the first failure of the attempt.
  OomWatch oom_watch_;
};

/// Reads the error file of each worker in `ends`, and for a failed worker the end of the file that
/// has its stderr. Runs on the log thread, because storage may hang.
void read_error_files(std::vector<ExplainedEnd>& ends);

}  // namespace muster

// Remembers the log files of this node's last attempts. People who follow a log ask from time to
// time: when a worker has failed and was started again, they have not read its last words yet.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/log_cut.h"
#include "base/ids.h"
#include "rendezvous/rounds/node_report.h"

namespace muster {

/// A worker's log file.
struct LogSource {
  std::string path;                             // Empty: its output goes to no file.
  std::shared_ptr<const LogCut> cut = nullptr;  // LogFile::cut(); null: a worker writes the file.
};
/// The log files of one worker.
struct WorkerLogs {
  GlobalRank rank;
  LogSource out = {};
  LogSource err = {};
};
/// A log, and where its reader is (LogCut).
struct LogPart {
  LogSource source;
  std::int64_t position = 0;
  int attempt = 0;
};

class AttemptLogs {
 public:
  /// More attempts than can begin and end while a follower pauses.
  static constexpr std::size_t kRemembered = 8;

  /// Attempt `number`, the number of starts, begins. `workers` are by local rank.
  void begin(int number, std::vector<WorkerLogs> workers);
  /// The newest attempt; 0: none has begun.
  int newest() const { return attempts_.empty() ? 0 : attempts_.back().number; }
  bool has(LocalRank rank) const;

  /// The parts of logs that may answer a question, in the order of the attempts, from the asked
  /// attempt on. The answer is the first part that has bytes, or the last part if none has any.
  /// Empty: the worker's output goes to no file. Call it only if has(asked.local_rank).
  std::vector<LogPart> parts(const NodeAsked& asked) const;

 private:
  struct Attempt {
    int number = 0;
    std::vector<WorkerLogs> workers;
  };
  std::deque<Attempt> attempts_;  // The newest is the last one.
};

}  // namespace muster

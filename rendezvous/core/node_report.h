// What a muster node tells its host about its workers, and what the host may ask it, for people.
//
// Plain values. None of them changes a run: the rendezvous does not read them. Limits: limits.h;
// messages: wire/native_report.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/time.h"

namespace muster {

struct WorkerReport {
  enum class State {
    Starting,  // It is to be started.
    Running,
    Succeeded,  // It exited with 0.
    Failed,     // It exited with another code, or a signal killed it.
  };
  int local_rank = 0;
  State state = State::Starting;
  int pid = 0;                              // 0: it has none yet.
  int exit_code = 0;                        // Of one that has ended; -N: signal N killed it.
  std::optional<std::int64_t> step;         // The last one that it reported.
  std::optional<Duration> progress_before;  // It reported progress so long before this was sent.
  bool operator==(const WorkerReport&) const = default;
};

/// The worker of this node that failed first in its newest failed attempt.
struct FailureReport {
  std::int64_t round = 0;
  int local_rank = 0;
  int rank = 0;  // The global one.
  int pid = 0;
  std::string exit;     // "exited with 3"
  std::string because;  // Why muster ended it: that it hung, and where it stood. Empty: it did not.
  std::string message;  // What its error file says; empty: none, or not read yet.
  std::string stderr_end;
  bool operator==(const FailureReport&) const = default;
};

struct NodeReport {
  ConnectionId from;
  std::int64_t round = 0;
  int starts = 0;                    // How often this node has started its workers.
  int workers = 0;                   // How many it has; `listed` may have fewer.
  std::vector<WorkerReport> listed;  // By local rank, at most kMaxReportedWorkers.
  std::optional<FailureReport> failure;
};

/// To a node: answer with NodeAnswered of the same number.
struct NodeAsked {
  enum class What {
    Log,     // A piece of the output of one worker.
    Stacks,  // Where one worker stands.
  };
  ConnectionId to;
  std::uint64_t number = 0;
  What what = What::Log;
  int local_rank = 0;
  bool from_stderr = false;
  std::int64_t offset = 0;  // In the log file; negative: so many bytes before its end.
  /// The number of starts whose log it is; another attempt's log is read from its beginning. 0: the
  /// newest.
  int attempt = 0;
};

struct NodeAnswered {
  ConnectionId from;
  std::uint64_t number = 0;
  std::string error;        // Why there is no answer, as a sentence; empty: there is one.
  std::string bytes;        // As they are in the file; not always UTF-8.
  std::int64_t offset = 0;  // Of the first byte.
  std::int64_t size = 0;    // Of the whole file, when it was read.
  int attempt = 0;
};

}  // namespace muster

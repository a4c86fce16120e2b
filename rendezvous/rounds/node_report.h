// Reports of muster nodes about their workers, and the host's questions to nodes, for people.
//
// Plain values. They do not change a run: the rendezvous does not read them. Limits: limits.h;
// messages: rendezvous/messages/message_fields.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/rendezvous_events.h"

namespace muster {

struct WorkerReport {
  enum class State {
    Starting,  // It has not been started yet.
    Running,
    Succeeded,  // It exited with 0.
    Failed,     // It exited with another code, or a signal killed it.
  };
  int local_rank = 0;
  State state = State::Starting;
  int pid = 0;                              // 0: none yet.
  int exit_code = 0;                        // Only after its end; -N: signal N killed it.
  std::optional<std::int64_t> step;         // The last step that it reported.
  std::optional<Duration> progress_before;  // From its last progress to the sending of the report.
  bool operator==(const WorkerReport&) const = default;
};

/// In messages and in the API; in the order of WorkerReport::State.
inline constexpr std::array<std::string_view, 4> kWorkerStates = {"starting", "running",
                                                                  "succeeded", "failed"};
inline std::string_view to_string(WorkerReport::State state) {
  return kWorkerStates[static_cast<std::size_t>(state)];
}

/// The worker of this node that failed first in its newest failed attempt.
struct FailureReport {
  std::int64_t round = 0;
  int local_rank = 0;
  int rank = 0;  // The global rank.
  int pid = 0;
  std::string exit;     // "exited with 3"
  std::string because;  // Why muster ended it: it hung, and where. Empty: muster did not end it.
  std::string message;  // The text of its error file; empty: none, or not read yet.
  std::string stderr_end;
  bool operator==(const FailureReport&) const = default;
};

struct NodeReport {
  ConnectionId from;
  std::int64_t round = 0;
  int starts = 0;                    // How often this node has started its workers.
  int workers = 0;                   // The number of its workers; `listed` may have fewer.
  std::vector<WorkerReport> listed;  // By local rank, at most kMaxReportedWorkers.
  std::optional<FailureReport> failure;
  std::optional<std::uint64_t> zygote_bytes;  // --warm: the own memory of this node's zygote.
};

/// A question to a node, which answers with a NodeAnswered of the same number.
struct NodeAsked {
  enum class What {
    Log,     // A piece of the output of one worker.
    Stacks,  // The stacks of one worker.
  };
  ConnectionId to;
  std::uint64_t number = 0;
  What what = What::Log;
  int local_rank = 0;
  bool from_stderr = false;
  /// In the log, where removed bytes count as well; negative: so many bytes before the file's end.
  std::int64_t offset = 0;
  /// The attempt whose log `offset` is about, as the number of starts. If the newest attempt is
  /// another one, its log is read from the beginning. 0: the newest attempt.
  int attempt = 0;
};

struct NodeAnswered {
  ConnectionId from;
  std::uint64_t number = 0;
  std::string error;        // Why there is no answer, as a sentence; empty: `bytes` is the answer.
  std::string bytes;        // As they are in the file; not always UTF-8.
  std::int64_t offset = 0;  // Of the first byte, as in NodeAsked.
  std::int64_t size = 0;    // The offset of the file's end when it was read.
  int attempt = 0;
  std::string node = {};  // The node's name. The host knows it: it is not in the node's message.
};

}  // namespace muster

// How a worker ended, and what muster had done to it before: the same words for the machine that
// decides, for what the shim remembers, and for the reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/ids.h"

namespace muster {

struct WorkerExit {
  bool killed = false;  // By the signal `status`; otherwise it exited with `status`.
  int status = 0;
  bool core_dumped = false;

  bool ok() const { return !killed && status == 0; }
  /// As Python has it: a signal's number is negative.
  int code() const { return killed ? -status : status; }
};

/// "exited with 3", "was killed by SIGKILL"
std::string exit_text(const WorkerExit& exit);

/// Of one worker of an attempt, also while it still lives.
struct WorkerEnd {
  LocalRank local_rank;
  GlobalRank rank;
  int pid = 0;  // 0: it was never started.
  WorkerExit exit;
  int order = 0;  // Of the deaths, as the kernel reported them: 0 was first.
  std::int64_t died_ms =
      0;  // Wall clock since the epoch: for people, and against error files. 0: it lives.
  std::optional<std::int64_t> signalled_ms;  // When muster first told it to end, if it lived then.
  std::vector<int> sent;                     // The signals for that, in their order.
  bool can_outlive_signal = false;           // It caught, ignored or blocked one of them.

  bool has_ended() const { return died_ms != 0; }
  bool was_sent(int signal) const;
  void told(int signal, bool can_outlive, std::int64_t now_ms);
};

}  // namespace muster

// When an agent that does not answer the shim counts as lost.
//
// Pure. The shim asks ("are you there?") and looks at intervals. Only time in which the shim itself
// was looking counts: while the machine sleeps, or the shim is stopped, nobody could have answered.
#pragma once

#include <chrono>

#include "agent/core/watched_time.h"
#include "rendezvous/core/time.h"

namespace muster {

class AgentWatch {
 public:
  /// Without an answer for so long, the agent is lost. Long enough for a file server that comes
  /// back.
  static constexpr Duration kCalmLimit = std::chrono::seconds(120);
  /// The same when a signal asks the job to end, and the agent would have to act on it.
  static constexpr Duration kAskedLimit = std::chrono::seconds(10);
  /// From the third such signal to the agent's end.
  static constexpr Duration kImpatientLimit = std::chrono::seconds(3);

  struct Look {
    Instant now{};
    bool answered = false;    // Everything that the shim has asked so far.
    bool is_stopped = false;  // By SIGSTOP or a debugger: somebody means it, and looks at it.
    int signals = 0;          // Events that asked the job to end.
    bool is_killing = false;  // The shim is busy for the agent: its last request is not answered.
  };

  /// Between two looks.
  Duration interval(int signals) const;
  /// Takes one look; true if the agent is lost.
  bool is_lost(const Look& look);

 private:
  WatchedTime time_;
  Duration silent_{};     // Not answering, and not stopped on purpose.
  Duration asked_{};      // Not answering since a signal came.
  Duration impatient_{};  // Since the third signal, whether it answers or not.
};

}  // namespace muster

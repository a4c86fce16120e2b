// Decides when an agent that does not answer the shim counts as lost.
//
// Pure. The shim sends pings to the agent and checks for the answers at intervals. Only the time in
// which the shim itself was checking counts: while the machine sleeps or the shim is stopped, the
// agent could not have answered.
#pragma once

#include <chrono>

#include "agent/core/watched_time.h"
#include "base/time.h"

namespace muster {

class AgentWatch {
 public:
  /// The agent is lost after this time without an answer. The limit is long enough for a file
  /// server that comes back.
  static constexpr Duration kSilenceLimit = std::chrono::seconds(120);
  /// The same limit once a signal has asked the job to end, because the agent must act on the
  /// signal.
  static constexpr Duration kSilenceAfterSignalLimit = std::chrono::seconds(10);
  /// The time from the third such signal until the agent counts as lost, even if it answers.
  static constexpr Duration kThirdSignalLimit = std::chrono::seconds(3);

  struct Observation {
    Instant now{};
    bool answered = false;    // The agent has answered all pings so far.
    bool is_stopped = false;  // SIGSTOP or a debugger has stopped the agent, so on purpose.
    int signals = 0;          // The number of signal events that asked the job to end.
    bool is_killing = false;  // The shim is still busy with the agent's last request, the killing.
  };

  /// The time between two checks.
  Duration interval(int signals) const;
  /// Records one check; true if the agent is lost.
  bool is_lost(const Observation& observation);

 private:
  WatchedTime time_;
  Duration silent_{};               // Time without an answer, while not stopped on purpose.
  Duration silent_after_signal_{};  // Time without an answer since the first signal.
  Duration after_third_signal_{};   // Time since the third signal, with or without answers.
};

}  // namespace muster

// Groups signals into events: decides whether a signal begins a new event or repeats the current
// one.
//
// Pure. A lost terminal sends SIGHUP twice, or SIGHUP and SIGTERM: the shell sends one, and the
// kernel the other when the shell has ended, which may take it seconds. `timeout` sends SIGTERM to
// its child and then to the child's group. A wrapper forwards a ctrl-C that the terminal has
// already sent to every process. Each of these is one event. A key that is pressed twice makes two
// events.
#pragma once

#include <chrono>
#include <optional>
#include <set>

#include "base/time.h"

namespace muster {

/// A signal that asks the job to end.
struct EndSignal {
  int number = 0;
  bool from_kernel = false;  // The terminal driver sent it: a key, or a lost terminal.
};

class SignalEvents {
 public:
  static constexpr Duration kEventWindow = std::chrono::seconds(1);

  /// True if this signal begins a new event. It belongs to the current event if it arrives within
  /// kEventWindow of the event's first signal, unless it is a key that this event already has. Of
  /// two SIGHUPs of which one is the kernel's, the second never begins an event.
  bool begins_event(const EndSignal& signal, Instant now);

  /// The number of events so far.
  int count() const { return count_; }

 private:
  int count_ = 0;
  Instant began_{};                   // The time of the current event's first signal.
  std::set<int> keys_;                // The keys of the current event.
  std::optional<EndSignal> hang_up_;  // The latest SIGHUP, unless it was the second of such two.
};

}  // namespace muster

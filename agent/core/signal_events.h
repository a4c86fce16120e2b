// Which signals are wishes of their own, and which are the same event once more.
//
// Pure. A lost terminal sends SIGHUP twice, or SIGHUP and SIGTERM; `timeout` sends SIGTERM to its
// child and then to the child's group; a wrapper passes a ctrl-C on that the terminal has sent to
// everybody. Each of these is one event. A key that is pressed twice is two.
#pragma once

#include <chrono>
#include <set>

#include "rendezvous/core/time.h"

namespace muster {

/// A signal that asks the job to end.
struct EndSignal {
  int number = 0;
  bool from_kernel = false;  // The terminal's driver sent it: a key, or a lost terminal.
};

class SignalEvents {
 public:
  static constexpr Duration kOneEvent = std::chrono::seconds(1);

  /// True if this signal begins a new event. It belongs to the event before if it comes within
  /// kOneEvent of that event's first signal, unless it is a key that this event has had already.
  bool begins_event(const EndSignal& signal, Instant now);

  /// The events so far.
  int count() const { return count_; }

 private:
  int count_ = 0;
  Instant began_{};     // The last event.
  std::set<int> keys_;  // Of the last event.
};

}  // namespace muster

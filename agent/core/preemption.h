// Decides which workers a stop signals at once, and which later: a worker that has promised to end
// by itself gets a notice first, and the signal only if it lives at the notice's deadline.
//
// Pure. docs/worker_channel.md describes the notice and the promise.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace muster {

/// How much of the time until SIGKILL belongs to those who end in a way of their own: a worker that
/// was notified, or one that handles its signal while its group is spared. The last tenth is for
/// those that the others had kept waiting.
constexpr Duration own_share(Duration stop_timeout) {
  return stop_timeout - stop_timeout / 10;
}

class Preemption {
 public:
  /// The deadline of a notice that is sent now.
  static Instant deadline_of_notice(Instant now, Duration stop_timeout) {
    return now + own_share(stop_timeout);
  }

  /// The workers have been notified. `promised`: the workers that had promised before the notice to
  /// end by themselves.
  void notify(Instant deadline, std::set<LocalRank> promised);
  /// The attempt is over: the next one has no notice and no promises.
  void reset();

  /// Whether a stop must not signal this worker before the deadline.
  bool ends_itself(LocalRank rank) const { return promised_.contains(rank); }
  /// The workers of the node that a stop signals at once, in the order of their ranks.
  std::vector<LocalRank> signalled_at_once(int local_world_size) const;

  /// When overdue() must be called. Empty: no worker has time until the deadline.
  std::optional<Instant> next_deadline() const;
  /// At the deadline: the workers whose time is over. They must be signalled now, if they live.
  std::set<LocalRank> overdue(Instant now);

 private:
  std::optional<Instant> deadline_;
  std::set<LocalRank> promised_;
};

}  // namespace muster

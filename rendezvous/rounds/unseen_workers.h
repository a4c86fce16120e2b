// Whether workers of the newest round may still run where the host cannot see them.
//
// The nodes of a round train on while the host does not answer, as long as all of them reach each
// other. So a host that has lost all of them by silence cannot tell a broken network from dead
// machines. A sign that one member has stopped its workers is enough: without that member the round
// is not whole, and the other members are fenced. docs/rendezvous_rules.md, "When a node hears
// nothing".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace muster {

class UnseenWorkers {
 public:
  /// The longest time for which the next round waits for a sign of one member.
  static constexpr Duration kMaxWait = std::chrono::minutes(5);

  /// The workers of a round of muster nodes may start. A round of one node does not count: that
  /// node has no other node to ask, so it is fenced at once (or the job has one node:
  /// docs/rendezvous_rules.md).
  void begin(std::int64_t round, std::int64_t generation, std::size_t world) {
    round_ = round;
    generation_ = generation;
    may_run_ = world > 1;
    fell_silent_ = false;
    wait_until_.reset();
  }
  /// One member of the round has stopped its workers, or its process has ended, or the next round
  /// begins anyway.
  void clear() { may_run_ = false; }
  /// The host gathers nodes for the next round.
  void end_round(Instant now) {
    if (may_run_) wait_until_ = later(now, kMaxWait);
  }
  /// The host ends the round for a member that it does not hear, and may lose the others, too. If
  /// all come back with their workers at work, the round can go on.
  void fall_silent() { fell_silent_ = may_run_; }
  bool fell_silent() const { return may_run_ && fell_silent_; }
  /// Whether the next round must not begin yet.
  bool may_run(Instant now) const { return may_run_ && wait_until_ && now < *wait_until_; }
  std::optional<Instant> wait_until() const { return may_run_ ? wait_until_ : std::nullopt; }
  std::int64_t round() const { return round_; }
  std::int64_t generation() const { return generation_; }

 private:
  std::int64_t round_ = -1;
  std::int64_t generation_ = 0;
  bool may_run_ = false;
  bool fell_silent_ = false;
  std::optional<Instant> wait_until_;
};

}  // namespace muster

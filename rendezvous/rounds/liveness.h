// Keep-alives: which nodes are on time, late or lost.
//
// Pure. Only the time at which a sign of life arrived here counts, never the sender's clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/time.h"

namespace muster {

class Liveness {
 public:
  using Id = std::uint32_t;
  enum class Standing { Unknown, OnTime, Late, Lost };

  /// A sign of life. Without another one, the node is late after half of `lease`, and lost after
  /// `lease`.
  void seen(Id id, Instant now, Duration lease);
  void remove(Id id);

  Standing standing(Id id, Instant now) const;
  /// Empty if the node is not watched.
  std::optional<Instant> last_seen(Id id) const;
  /// The last sign of life of the node that has been silent longest; empty if no node is watched.
  std::optional<Instant> oldest() const;
  /// When the next node is lost without another sign of life; empty if no node is watched.
  std::optional<Instant> next_deadline() const;
  /// Removes and returns the nodes whose lease is over, in the order in which the leases ended.
  std::vector<Id> take_lost(Instant now);

 private:
  struct Watch {
    Instant last;
    Duration lease;
  };
  std::map<Id, Watch> watched_;
  std::set<std::pair<Instant, Id>> by_end_;
};

}  // namespace muster

// Keep-alives: who is on time, who is late, who is lost.
//
// Pure. Judged by when a sign of life arrived here, never by what the sender's clock said.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/core/time.h"

namespace muster {

class Liveness {
 public:
  using Id = std::uint32_t;
  enum class Standing { Unknown, OnTime, Late, Lost };

  /// A sign of life. Without another one the node is late after half of `lease`, lost after all.
  void seen(Id id, Instant now, Duration lease);
  void forget(Id id);

  Standing standing(Id id, Instant now) const;
  /// Nothing if the node is not watched.
  std::optional<Instant> last_seen(Id id) const;
  /// The earliest last sign of life of all nodes that are watched.
  std::optional<Instant> oldest() const;
  /// When the next node is lost if nothing is heard; nothing if nobody is watched.
  std::optional<Instant> next_deadline() const;
  /// Those whose lease is over, the longest silent first; they are forgotten.
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

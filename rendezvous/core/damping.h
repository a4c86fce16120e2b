// Nodes that are lost and come back again and again: how long each is held back.
//
// Every return of such a node may restart the others, and every loss does. Pure. A node is known by
// its agent's instance: an agent that was started again is another node.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "rendezvous/core/time.h"

namespace muster {

/// Losses that cost no wait: cables are pulled, switches are restarted.
inline constexpr int kFreeLosses = 2;
/// After the first one that does; it doubles with each further one.
inline constexpr Duration kFirstHold = std::chrono::seconds(10);
inline constexpr Duration kLongestHold = std::chrono::minutes(5);
/// Without a loss for so long, all earlier ones are forgotten.
inline constexpr Duration kLossesForgotten = std::chrono::minutes(10);
/// Nodes that are remembered; beyond, the one that was lost first is forgotten.
inline constexpr std::size_t kMaxDampedNodes = 4096;

class Damping {
 public:
  struct Hold {
    int losses = 0;
    Duration wait{};  // From the last loss on.
    Instant until{};
  };
  /// A node that was in a running round is lost. One without an instance cannot be recognised.
  void lost(const std::string& instance, Instant now);
  /// `until` is not after `now` if the node may come in at once.
  Hold hold_of(const std::string& instance, Instant now) const;
  std::size_t nodes() const { return losses_.size(); }

 private:
  struct Losses {
    int count = 0;
    Instant last{};
  };
  std::map<std::string, Losses> losses_;
};

}  // namespace muster

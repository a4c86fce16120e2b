// Nodes that are lost and come back repeatedly: how long the host holds each of them back.
//
// Every return of such a node may restart the others, and every loss does. Pure. The instance of
// its agent identifies a node: an agent that was started again is another node.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "rendezvous/core/time.h"

namespace muster {

/// The first losses cost no wait: cables are pulled, switches are restarted.
inline constexpr int kFreeLosses = 2;
/// The wait after the next loss. It doubles with each further loss.
inline constexpr Duration kFirstHold = std::chrono::seconds(10);
inline constexpr Duration kLongestHold = std::chrono::minutes(5);
/// After so long without a loss, all earlier losses are forgotten.
inline constexpr Duration kLossesForgotten = std::chrono::minutes(10);
/// The number of nodes that are remembered. Beyond that, the node whose last loss is oldest is
/// forgotten.
inline constexpr std::size_t kMaxDampedNodes = 4096;

class Damping {
 public:
  struct Hold {
    int losses = 0;
    Duration wait{};  // From the last loss on.
    Instant until{};
  };
  /// Records the loss of a node of a running round. A node without an instance is not recorded: it
  /// could not be recognised.
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

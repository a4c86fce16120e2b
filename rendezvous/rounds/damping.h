// Nodes that are lost and come back repeatedly: how long the host holds each of them back.
//
// Every return of such a node may restart the others, and every loss does. Pure. The instance of
// its agent identifies a node. An agent that was started again has another instance, so agents that
// were gone soon after they had come are counted for their address, too.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/time.h"

namespace muster {

/// The first losses cost no wait: cables are pulled, switches are restarted.
inline constexpr int kFreeLosses = 2;
/// The same for the agents at one address. Several nodes may have the same address.
inline constexpr int kFreeYoungLosses = 4;
/// An agent that is gone within this time may be one that is started again and again.
inline constexpr Duration kShortLife = std::chrono::minutes(5);
/// When an agent came whose coming this host has not seen.
inline constexpr Instant kLongAgo{-std::chrono::hours(1)};
/// Losses at one address within this time have one cause, and count once.
inline constexpr Duration kOneLoss = std::chrono::seconds(1);
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
    bool of_address = false;
  };
  /// Records the loss of a node of a running round. A node without an instance is not recorded: it
  /// could not be recognised.
  void lost(const std::string& instance, Instant now);
  /// `until` is not after `now` if the node may come in at once.
  Hold hold_of(const std::string& instance, Instant now) const;
  /// The same for an agent that had come less than kShortLife before, and has restarted the others
  /// when it came or when it went. Its end counts in whatever way it has come about.
  void gone_young(const std::string& address, Instant now);
  /// Nobody is left whom agents of any address could restart.
  void forget_addresses() { at_address_.clear(); }
  Hold hold_of_address(const std::string& address, Instant now) const;
  /// The longer one of the two.
  Hold hold_of_node(const std::string& instance, const std::string& address, Instant now) const;
  std::size_t nodes() const { return losses_.size(); }

 private:
  struct Losses {
    int count = 0;
    Instant last{};
  };
  using LossesOf = std::map<std::string, Losses>;
  static void count(LossesOf& losses, const std::string& of, Instant now, Duration one_loss);
  static Hold hold(const LossesOf& losses, const std::string& of, Instant now, int free);

  LossesOf losses_;      // By instance.
  LossesOf at_address_;  // Of agents that were gone young.
};

}  // namespace muster

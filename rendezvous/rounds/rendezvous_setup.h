// What a rendezvous is given when it begins.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/rounds/settings.h"

namespace muster {

/// The parameters of a rendezvous, which the host knows when the run begins.
struct RendezvousSetup {
  /// Empty: the settings of the first muster node apply. Until that node joins, the torchrun nodes
  /// run the rendezvous by their own rules.
  std::optional<RunSettings> run;
  Duration lease = std::chrono::seconds(5);                // For muster nodes.
  Duration keep_alive_interval = std::chrono::seconds(5);  // For torchrun nodes.
  /// A torchrun node that is silent for so long is lost: keep-alive interval × attempts.
  Duration dead_after = std::chrono::seconds(15);
  /// Identifies this rendezvous. It must differ from the life of the rendezvous before it, because
  /// both count rounds from 0. 0: unknown.
  std::int64_t life = 0;
  /// How long a member that can resume may be without a connection after its connection was closed.
  Duration closed_grace = std::chrono::milliseconds(500);
  /// The generation of every round is above this.
  std::int64_t generation_floor = 0;
  /// Higher generations, or numbers of rounds, from nodes are ignored.
  std::int64_t most_reported = kMaxReportedGeneration;
  /// Rounds up to this generation belonged to an earlier run of this name, which has ended. Nodes
  /// of such rounds cannot resume.
  std::int64_t ended_generation = 0;
  std::size_t members = kMaxMembers;  // Nodes of either kind; further joins are refused.
  /// The time for rank 0 to report the address of the workers' store. After that another muster
  /// node becomes rank 0.
  Duration prepare_within = std::chrono::seconds(30);
  /// Whether the caller records the changes that take_changes() returns.
  bool recorded = false;
  /// How long a host that begins with a record waits for the first node of the run: the network may
  /// be up later than the host.
  Duration first_return = std::chrono::minutes(10);
};

/// Added to the lease, where a host waits for nodes that come back: for nodes whose last try to
/// connect has just failed.
inline constexpr Duration kReturnSlack = std::chrono::seconds(1);

}  // namespace muster

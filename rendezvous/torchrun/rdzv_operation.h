// The operation that a torchrun node means by a compare-and-set, derived from the two states.
#pragma once

#include <optional>
#include <vector>

#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// One of torchrun's actions (dynamic_rendezvous.py, torch 2.13), and its data.
struct StateOperation {
  enum class Kind {
    KeepAlive,
    AddToParticipants,
    AddToWaitList,
    AddToRedundancyList,
    RemoveFromParticipants,
    RemoveFromWaitList,
    RemoveFromRedundancyList,
    MarkComplete,
    MarkClosed,
  };
  Kind kind = Kind::KeepAlive;
  std::optional<NodeName> node;       // Not known for MarkComplete and MarkClosed.
  std::optional<WallTime> heartbeat;  // The new heartbeat of the node.
  std::vector<NodeName> dropped;      // Nodes that the writer took for dead.
};

/// The operation that leads from `seen` to `proposed`; empty if no single operation does. If
/// several nodes have vanished at once, `writer` (if known) is the one that left.
std::optional<StateOperation> derive_operation(const RendezvousState& seen,
                                               const RendezvousState& proposed,
                                               const std::optional<NodeName>& writer);

/// Whether the states are equal except for the order of dicts and sets, which torchrun ignores.
bool same_content(const RendezvousState& a, const RendezvousState& b);

}  // namespace muster

// What a torchrun node meant by a compare-and-set: the operation behind two states.
#pragma once

#include <optional>
#include <vector>

#include "rendezvous/core/rendezvous_state.h"

namespace muster {

/// One of torchrun's actions (dynamic_rendezvous.py, torch 2.13), and what came with it.
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
  std::optional<NodeName> node;       // Not known of MarkComplete and MarkClosed.
  std::optional<WallTime> heartbeat;  // Its new one.
  std::vector<NodeName> dropped;      // Nodes that the writer took for dead.
};

/// The operation that leads from `seen` to `proposed`; nothing if no single one does. `writer`, if
/// known, settles who left when several nodes vanished at once.
std::optional<StateOperation> explain(const RendezvousState& seen, const RendezvousState& proposed,
                                      const std::optional<NodeName>& writer);

/// Equal but for the order of dicts and sets, which torchrun does not look at.
bool same_content(const RendezvousState& a, const RendezvousState& b);

}  // namespace muster

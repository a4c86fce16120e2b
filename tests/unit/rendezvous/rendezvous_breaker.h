// Breaks an invariant of a rendezvous, to see what it makes of that.
#pragma once

#include "rendezvous/core/rendezvous.h"

namespace muster::testing {

struct RendezvousBreaker {
  /// Removes the member of a connection and leaves the indexes that name it.
  static void remove_member(const Rendezvous& rendezvous, ConnectionId connection) {
    auto& broken = const_cast<Rendezvous&>(rendezvous);
    broken.members_.erase(broken.by_connection_.at(connection.value));
  }
};

}  // namespace muster::testing

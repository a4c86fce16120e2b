// Breaks an invariant of a rendezvous, for tests of its reaction.
#pragma once

#include "rendezvous/host/rendezvous.h"

namespace muster::testing {

struct RendezvousBreaker {
  /// Removes the member of a connection, but not from the indexes.
  static void remove_member(const Rendezvous& rendezvous, ConnectionId connection) {
    auto& broken = const_cast<Rendezvous&>(rendezvous);
    MemberTable& members = broken.run_.members;
    members.members_.erase(members.by_connection_.at(connection.value));
  }
};

}  // namespace muster::testing

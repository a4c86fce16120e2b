// How many members of a run have the properties that the rules ask for with every message.
//
// MemberTable updates these counts when a member changes. A scan of the members for every message
// would make a step that all n nodes take, such as the end of a job, cost n * n.
#pragma once

#include <cstddef>

namespace muster {

struct MemberCounts {
  std::size_t natives = 0;          // Muster nodes.
  std::size_t connected = 0;        // Nodes of both kinds that have a connection.
  std::size_t succeeded = 0;        // Muster nodes that have finished their part of the job.
  std::size_t torch_redundant = 0;  // torchrun nodes on the redundancy list.
  // Of the participants only:
  std::size_t working = 0;   // Those that have not succeeded.
  std::size_t returned = 0;  // Those that were in the last complete round.
  std::size_t absent = 0;    // Those without a connection, that will be lost if they stay away.

  bool operator==(const MemberCounts&) const = default;
  MemberCounts& operator+=(const MemberCounts& other) {
    natives += other.natives;
    connected += other.connected;
    succeeded += other.succeeded;
    torch_redundant += other.torch_redundant;
    working += other.working;
    returned += other.returned;
    absent += other.absent;
    return *this;
  }
  MemberCounts& operator-=(const MemberCounts& other) {
    natives -= other.natives;
    connected -= other.connected;
    succeeded -= other.succeeded;
    torch_redundant -= other.torch_redundant;
    working -= other.working;
    returned -= other.returned;
    absent -= other.absent;
    return *this;
  }
};

}  // namespace muster

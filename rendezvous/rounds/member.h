// A member of a run: a node that has joined, and its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/rounds/damping.h"
#include "rendezvous/rounds/liveness.h"
#include "rendezvous/rounds/node_name.h"
#include "rendezvous/rounds/notice.h"

namespace muster {

enum class Place {
  Away,         // torchrun: left a round or the redundancy list, and is about to come back.
  Participant,  // In the round.
  Restarting,   // muster: was told to stop its workers and to join again.
  LeftOut,      // muster: as Restarting, but the next round was complete before it came back.
  Waiting,      // On the wait list: wants the next round.
  Redundant,    // On the redundancy list: takes a place that becomes free.
  Standby,      // muster: marked as a spare.
  Finished,     // muster: its part of the job is done, and the round has gone on without it.
  Resuming,     // muster: resumes in a round that an earlier host made.
  HeldBack,     // muster: was lost repeatedly, and is not let in yet.
  KeptOut,      // muster: an operator keeps it out of the rounds, or it will go.
};
inline constexpr std::size_t kPlaces = 11;

/// What a torchrun node waits for in the store. AtExit: its workers have succeeded.
enum class StoreWait { No, ForAnything, AtExit };

/// MemberTable changes the fields that are marked "table": its indexes and counts depend on them.
struct Member {
  Liveness::Id id = 0;                     // table; never changes.
  NodeName name;                           // table; never changes.
  bool native = false;                     // table; never changes.
  std::optional<ConnectionId> connection;  // table
  Place place = Place::Away;               // table
  std::uint64_t order = 0;                 // table. The order among the members with this place.
  std::optional<int> last_rank;            // table
  bool erased = false;                     // table. No member any more: only its fields are left.
  int rank = 0;
  // Only of muster nodes.
  std::string instance;  // table
  int local_world_size = 1;
  std::string role;
  std::optional<int> preferred_rank;
  bool spare = false, hosts_rendezvous = false;
  bool ended_a_round = false;         // A round was ended to let it in.
  bool succeeded = false;             // table
  std::int64_t restarted_round = -1;  // The round of the last RestartRound to this node.
  /// The connection on which the host sent Rejoin. Earlier messages to the node may be lost.
  std::optional<ConnectionId> rejoins;
  std::optional<Instant> join_deadline;  // table
  bool resumes = false;
  bool proxied = false, closed = false;  // NodeJoined::proxied. closed: its process has ended.
  std::optional<Instant> held_until;     // table. Only in HeldBack.
  /// table. The node has no connection, and is lost at this time.
  std::optional<Instant> absent_until;
  Instant absent_since{}, came_at = kLongAgo;  // Only with absent_until; of its instance.
  bool takes_notices = false;                  // NodeJoined::takes_notices.
  bool tells_progress = false;                 // The node sends NodeProgressed.
  std::optional<Doom> doom;                    // table. The node will go.
  std::int64_t saved_round = -1;               // NodeSaved::round.
  std::optional<Instant> allowed_until = {};   // Doom::deadline before an operator allowed it.
  // Only of torchrun nodes.
  StoreWait waits = StoreWait::No;
  bool finished = false;  // Its workers have succeeded in this round.
};

}  // namespace muster

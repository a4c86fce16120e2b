// What of a run outlives its host, as plain values: rendezvous.h makes them and begins with them.
//
// Not in them: connections, keep-alives, and the workers' keys. Their encoding is
// rendezvous/wire/run_record_codec.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/kept_out.h"
#include "rendezvous/core/rendezvous_events.h"

namespace muster {

struct RunOutcome {
  bool succeeded = true;
  std::optional<NodeName> who;  // Who failed first.
  std::string why;
  bool operator==(const RunOutcome&) const = default;
};

/// Everything about a run but its members.
struct RunRecord {
  RunSettings settings;
  std::int64_t life = 0;  // RendezvousSetup's: the nodes know the run's rounds by it.
  std::int64_t round = 0;
  std::int64_t generation = 0;
  std::int64_t highest_generation = 0;
  bool had_round = false;
  bool complete = false;
  bool preparing = false;  // Complete, and nobody has been told its rank.
  bool draining = false;   // Complete, and torchrun nodes have yet to leave it.
  bool closed = false;
  int restarts_used = 0;
  int prepare_failures = 0;
  std::int64_t last_world = 0;
  std::optional<StoreAddress> store;
  /// Why the last round has ended, while there is no further one.
  std::optional<NodeName> restart_who;
  std::string restart_what;
  std::optional<RunOutcome> outcome;
  /// Of the last call, when this was recorded. A restarted host lets it go on from there.
  std::optional<Duration> last_call_left;
  /// RendezvousSetup's. Nothing: of an older muster.
  std::optional<std::int64_t> ended_generation;
  std::vector<KeptOutEntry> kept_out;  // By an operator.
  std::vector<HostStrikes> strikes;    // The host that was struck last comes last.
  bool operator==(const RunRecord&) const = default;
};

/// A node that has, or had, a rank in the newest round, or that has finished.
struct MemberRecord {
  enum class Standing {
    Member,    // It works, or is about to come back.
    Finished,  // Its part is done.
    Lost,      // Gone before its part was done: others wait for one in its place.
  };
  NodeName name;
  Standing standing = Standing::Member;
  std::optional<int> rank;
  bool native = true;  // Of a torchrun node only what is above is known.
  std::string instance;
  int local_world_size = 1;
  std::string role;
  std::optional<int> preferred_rank;
  bool spare = false;
  bool hosts_rendezvous = false;
  std::string why;  // Of a lost one.
  bool operator==(const MemberRecord&) const = default;
};

/// What has changed since the last time.
struct RunChange {
  RunRecord record;
  std::vector<MemberRecord> members;  // New ones, and those that are not as they were.
  std::vector<NodeName> removed;
};

struct StoredRun {
  std::string run_id;
  RunRecord record;
  std::vector<MemberRecord> members;
};

/// A line of the history.
struct EndedRun {
  std::string run_id;
  std::int64_t ended_at = 0;  // Seconds since 1970.
  std::int64_t rounds = 0;
  std::int64_t generation = 0;
  std::int64_t nodes = 0;  // In the last round.
  int restarts = 0;
  RunOutcome outcome;
  bool operator==(const EndedRun&) const = default;
};

}  // namespace muster

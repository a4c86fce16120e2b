// The durable state of a run, as plain values: rendezvous.h makes the records and begins with them.
//
// Connections, keep-alives and the workers' keys are not recorded. The encoding of the records is
// in rendezvous/state/run_record_codec.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/rounds/kept_out.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/rounds/restart_ledger.h"
#include "rendezvous/rounds/run_history.h"

namespace muster {

struct RunOutcome {
  bool succeeded = true;
  std::optional<NodeName> who;  // The node that failed first.
  std::string why;
  bool preempted = false;  // RunEnded::preempted.
  int without_progress = 0;
  bool hopeless = false;
  bool operator==(const RunOutcome&) const = default;
};

/// The first failure of a run, for people: RunHistory::first_failure().
struct RecordedFailure {
  RunEvent::Kind kind = RunEvent::Kind::RoundRestarts;
  std::int64_t at_ms = 0;  // Milliseconds since 1970.
  std::int64_t round = 0;
  std::string node = {};
  std::optional<int> rank = {};
  std::optional<RestartCause> cause = {};
  std::string text = {};
  bool operator==(const RecordedFailure&) const = default;
};

/// How the run before ended that had the same id, for people.
struct PreviousRun {
  bool succeeded = true;
  bool preempted = false;  // It was stopped because nodes of it would go.
  std::string why = {};
  std::optional<std::int64_t> ended_at_ms = {};  // Since 1970. Empty: not known.
  int restarts_used = 0;
  std::optional<RecordedFailure> first_failure = {};
  std::optional<FailureReport> failure_report = {};
  bool operator==(const PreviousRun&) const = default;
};

/// The record of a run, without its members.
struct RunRecord {
  RunSettings settings;
  std::int64_t life = 0;  // RendezvousSetup::life: the nodes identify the run's rounds with it.
  std::int64_t round = 0;
  std::int64_t generation = 0;
  std::int64_t highest_generation = 0;
  bool had_round = false;
  bool complete = false;
  bool preparing = false;  // Complete, and no node has been told its rank.
  bool draining = false;   // Complete, and torchrun nodes have not left it yet.
  bool closed = false;
  int restarts_used = 0;
  int prepare_failures = 0;
  std::int64_t last_world = 0;
  std::optional<StoreAddress> store;
  /// Why the last round has ended, until the next one is complete.
  std::optional<NodeName> restart_who;
  std::string restart_what;
  std::optional<RunOutcome> outcome;
  /// The remaining time of the last call when this was recorded. A restarted host continues the
  /// last call with it.
  std::optional<Duration> last_call_left;
  /// RendezvousSetup::ended_generation. Empty: an older muster has written the record.
  std::optional<std::int64_t> ended_generation;
  std::vector<KeptOutEntry> kept_out;  // By an operator.
  std::vector<HostStrikes> strikes;    // The host with the newest strike comes last.
  /// The instances of nodes that were lost before the end. Before the end: of nodes that have never
  /// had a rank, such as spares. A later host counts them as lost until they are back.
  std::vector<std::string> lost_agents;
  /// The generation of the newest round if no failure of it has cost a restart, otherwise 0. Empty:
  /// an older muster has written the record.
  std::optional<std::int64_t> uncounted_generation;
  /// What restarts have cost. Empty: an older muster has written the record.
  std::optional<RestartCosts> restart_costs;
  /// The longest lease by which nodes of the newest round may wait before they stop their workers.
  /// Zero: an older muster has written the record.
  Duration lease{};
  // Set by RunService, not by the rendezvous.
  std::optional<RecordedFailure> first_failure;
  std::optional<FailureReport> failure_report = {};  // Its node's, of a run that has ended.
  std::optional<std::int64_t> ended_at_ms = {};      // Since 1970.
  std::optional<std::int64_t> began_at_ms = {};      // Empty: an older muster has written it.
  std::optional<PreviousRun> previous = {};
  bool operator==(const RunRecord&) const = default;
};

/// The notice of a node that will go: Doom, with its deadline by the wall clock.
struct RecordedDoom {
  std::int64_t deadline_ms = 0;  // Since 1970.
  std::string reason;
  bool in_job = false;
  bool is_needed = false;
  bool operator==(const RecordedDoom&) const = default;
};

/// A node that has, or had, a rank in the newest round, that has finished, or that was a member
/// when the run ended.
struct MemberRecord {
  enum class Standing {
    Member,    // It works, or is about to come back.
    Finished,  // It has finished its part.
    Lost,      // It left before it had finished: the others wait for a node in its place.
  };
  NodeName name;
  Standing standing = Standing::Member;
  std::optional<int> rank;
  bool native = true;  // False: a torchrun node, of which only the fields above are known.
  std::string instance;
  int local_world_size = 1;
  std::string role;
  std::optional<int> preferred_rank;
  bool spare = false;
  bool hosts_rendezvous = false;
  std::string why;  // Why the node is lost.
  std::optional<RecordedDoom> doom = {};
  bool operator==(const MemberRecord&) const = default;
};

/// The changes since the last ones.
struct RunChange {
  RunRecord record;
  std::vector<MemberRecord> members;  // New members, and members whose record has changed.
  std::vector<NodeName> removed;
};

struct StoredRun {
  std::string run_id;
  RunRecord record;
  std::vector<MemberRecord> members;
};

/// An entry in the history of ended runs.
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

// The state of one run, which the rules of rounds read and change.
//
// Plain data in groups: what a group means stands beside it, and who changes it in the class that
// has the rule (docs/architecture.md, "The rules of a run"). Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/damping.h"
#include "rendezvous/rounds/first_command.h"
#include "rendezvous/rounds/kept_out.h"
#include "rendezvous/rounds/lost_node.h"
#include "rendezvous/rounds/member_table.h"
#include "rendezvous/rounds/notice.h"
#include "rendezvous/rounds/recovery.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/rounds/rendezvous_setup.h"
#include "rendezvous/rounds/restart_ledger.h"
#include "rendezvous/rounds/run_journal.h"
#include "rendezvous/rounds/run_phase.h"
#include "rendezvous/rounds/unseen_workers.h"
#include "rendezvous/rounds/wait_reason.h"

namespace muster {

/// The round that is being gathered or runs, and the newest complete one: they are the same from
/// complete_round() to next_round().
struct Round {
  std::int64_t number = 0;
  /// Never Ended: torchrun nodes see the round's phase also after the end of the run.
  RunPhase phase = RunPhase::Gathering;
  std::optional<Instant> prepared_by;  // The deadline of rank 0, since it was asked for the store.
  int prepare_failures = 0;            // In a row, over several rounds.
  std::optional<StoreAddress> store;   // The store of the round's workers.
  std::vector<WorkerRanks> workers;    // By group rank; empty with a torchrun node in the round.
  // Of the newest complete round.
  bool had_one = false;
  std::int64_t generation = 0;
  std::size_t world = 0;
  Duration lease{};  // RunRecord::lease: an earlier host may have had a longer one.
  std::vector<LostNode> lost;
  /// The restored run was in phase Preparing: nodes may have been told their ranks nevertheless.
  bool may_be_complete = false;
  /// Which node was refused last and why, for the nodes that wait in this round. Empty: none was.
  std::string refusal;
  // Of the running round (Notices):
  std::optional<RoundNotice> notice;
  bool all_have_answered = false;
  std::optional<Instant> tell_at;    // When its nodes are told of a change of `notice`.
  std::optional<Instant> told_at;    // When they were told last.
  std::set<MemberTable::Id> untold;  // Told, but perhaps not on their present connection.
  std::optional<std::uint64_t> notice_made_for;  // The run's revision.

  void drop_notice() {
    notice.reset();
    tell_at.reset();
    told_at.reset();
    untold.clear();
    notice_made_for.reset();
  }
};

/// The wait for further nodes, once the minimum is there.
struct LastCall {
  std::optional<Instant> end;
  /// As a torchrun node has set it: in a run without muster nodes, torchrun nodes decide it.
  std::optional<WallTime> proposed;
  std::uint64_t revision = 0;             // Changes if what torchrun nodes see of it is outdated.
  std::optional<Duration> restored;       // The remaining time of a restored last call.
  std::optional<Instant> spares_step_in;  // When spares fill a first round that lacks nodes.

  void begin(Instant until) {
    clear();
    end = until;
  }
  void clear() {
    end.reset();
    propose(std::nullopt);
  }
  void propose(std::optional<WallTime> until) {
    proposed = until;
    ++revision;
  }
};

/// What failures have cost.
struct Restarts {
  int used = 0;  // For failures and hangs: the restart count of the job.
  RestartLedger ledger;
  std::optional<Instant> wait_until;  // The next round is not complete before.
  /// The generation of the newest round, if no failure of it has cost a restart yet.
  std::optional<std::int64_t> uncounted;
  std::optional<std::pair<NodeName, std::string>> cause;  // Why the next round is needed.
};

struct Generations {
  std::int64_t highest = 0;   // At least the floor, and what nodes have reported.
  std::int64_t reported = 0;  // The highest generation that a node has reported.
};

struct RunEnding {
  bool closed = false;  // Nobody may join any more.
  std::optional<RunEnded> outcome;
  std::set<std::string> instances;      // Of the members when the run ended.
  std::deque<std::string> lost_agents;  // The instances of the last nodes that were lost.

  /// Whether the run has ended, and the node that joins was in it.
  bool was_missed_by(const NodeJoined& event) const;
};

/// Which nodes stay outside the rounds, and what their hosts have done.
struct Conduct {
  Damping damping;
  StrikeList strikes;
  KeptOut kept_out;
  bool excluded_may_work = false;  // The running round may have an excluded node.
  std::map<std::string, FirstCommand> first_commands;  // By role.
};

/// Nodes that come back to a host that was started again.
struct Returns {
  /// For a short time: nodes of a round that was not taken up again are still on their way back.
  struct Cancelled {
    Instant until{};
    std::int64_t generation = 0;
    std::size_t world = 0;       // The nodes of that round. 0: the members are all of them.
    std::set<std::string> back;  // The instances of those that are back.
  };
  std::optional<Cancelled> cancelled;
  std::size_t never_back = 0;  // Nodes of that round that have not come back in time.
  std::int64_t own_life = 0;   // This host's. A restored run goes on with the recorded one.
  std::optional<std::int64_t> restored_generation;  // Until this host has completed a round.
  std::set<MemberTable::Id> awaited;                // Of a restored running round, not back yet.
  Instant last{};       // When a member of a restored round has come back.
  bool nobody = false;  // No node of a restored run has come back yet.

  /// The number of nodes of the cancelled round that may still come back.
  std::size_t missing() const {
    if (!cancelled || cancelled->back.size() >= cancelled->world) return 0;
    return cancelled->world - cancelled->back.size();
  }
};

struct RunCore {
  explicit RunCore(const RendezvousSetup& setup);

  RendezvousSetup setup;
  std::optional<RunSettings> settings;
  std::string settings_from = "the host";
  Instant now{};
  MemberTable members;
  Round round;
  LastCall last_call;
  Restarts restarts;
  Generations generations;
  RunEnding ending;
  UnseenWorkers unseen;
  Conduct conduct;
  std::optional<Recovery> recovery;
  Returns returns;
  std::optional<Instant> paused_until;  // The end of the last long pause of this process.
  RunJournal journal;
  WaitReason reason;
  RendezvousActions actions;                    // Of this event.
  std::uint64_t revision = 0;                   // Without the members': changed() raises it.
  mutable std::optional<std::string> violated;  // Broken in this event: the run must end.

  void advance(Instant to) { now = std::max(now, to); }
  bool first_round() const { return !round.had_one; }
  bool complete() const { return is_complete(round.phase); }
  bool preparing() const { return round.phase == RunPhase::Preparing; }
  bool draining() const { return round.phase == RunPhase::Draining; }
  RunPhase phase() const { return ending.outcome ? RunPhase::Ended : round.phase; }
  void move_to(RunPhase next);
  /// When the rules are next needed; nothing if only an event can change anything.
  std::optional<Instant> next_deadline() const;
  const Member* rank_0() const;
  /// Whether a node that is to stay out of the next round can be moved out at once. Otherwise it
  /// has a part in the running round, or comes back, and is moved out then.
  bool can_be_moved_out(const Member& member) const;
  /// The number of nodes that are alive and about to join this round.
  std::size_t expected() const;
  /// Whether the next round waits because --restart-policy says so.
  bool restart_waits() const {
    return !complete() && !ending.outcome && restarts.wait_until && *restarts.wait_until > now;
  }
  /// Whether the round must not be completed yet, even if there are enough nodes or the last call
  /// is over.
  bool is_held_up() const;
  bool is_credible(std::int64_t reported) const { return reported <= setup.most_reported; }
  /// The settings, for callers that know that they are there: the host or the first muster node has
  /// brought them. Missing settings are a broken invariant.
  const RunSettings& known_settings() const;

  /// Tells the nodes that wait that a node which wanted to join was refused, and why.
  void note_refusal(const std::string& text);
  /// Something that people, torchrun nodes or the record may show has changed.
  void changed() { ++revision; }
  std::uint64_t whole_revision() const { return revision + members.revision(); }
  /// Records a broken invariant. The current event is handled to its end; then the run ends.
  void violate(std::string_view invariant) const;

  template <typename Action>
  void send(Action action) {
    actions.push_back(std::move(action));
  }
  /// Sends the outcome, which must be there.
  void send_outcome(ConnectionId to);
};

}  // namespace muster

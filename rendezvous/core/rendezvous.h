// One run's rendezvous: who is in the round, with which rank, and when the round is complete.
//
// One state, two doors: muster nodes send events and are told the outcome (step); torchrun nodes
// read and compare-and-set the state as a whole (render, propose). Pure: no sockets, no threads, no
// clock, no log; the same events at the same instants always give the same actions. State table
// and pictures: docs/rendezvous.md.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/core/liveness.h"
#include "rendezvous/core/rdzv_operation.h"
#include "rendezvous/core/rendezvous_events.h"

namespace muster {

inline constexpr std::size_t kMaxMembers = 65'536;

/// What the host knows when the run begins.
struct RendezvousSetup {
  /// Without it the first muster node's count; until then the run is left to its torchrun nodes.
  std::optional<RunSettings> run;
  Duration lease = std::chrono::seconds(5);                // Of a muster node.
  Duration keep_alive_interval = std::chrono::seconds(5);  // Of torchrun nodes.
  Duration dead_after = std::chrono::seconds(15);          // torchrun: interval × attempts.
  /// Differs from that of the rendezvous before it, which counted rounds from 0, too. 0: unknown.
  std::int64_t life = 0;
};

/// What a torchrun node asks by compare-and-set.
struct StateProposal {
  ConnectionId from;
  RendezvousState seen;  // What its expected value says; a fresh state for "no state".
  RendezvousState proposed;
};
enum class ProposalVerdict {
  Accepted,  // The state is now what was proposed.
  Merged,    // Its wish was applied to today's state: reply with that.
  Lost,      // Nothing was changed: reply with today's state, when it is its turn.
  Refused,   // It makes no sense, or takes a muster node's name: not to be tried again.
};
struct ProposalResult {
  ProposalVerdict verdict = ProposalVerdict::Lost;
  std::string refusal;  // Why, if it is refused.
  RendezvousActions actions;
};

class Rendezvous {
 public:
  explicit Rendezvous(const RendezvousSetup& setup);

  /// Takes one event. `now` never goes backwards between calls.
  RendezvousActions step(const RendezvousEvent& event, Instant now);
  /// When step(RendezvousTimePassed) is next needed.
  std::optional<Instant> next_deadline() const;

  /// A torchrun node's connection asked for anything (it does once a second). Counts as a sign of
  /// life if its clock is so slow that we renew its heartbeat.
  void heard(ConnectionId from, Instant now);
  /// A torchrun node's connection waits for a key of the store's, or does not any more. Meanwhile
  /// it can say nothing else, not even that it lives: it lives as long as the connection does.
  enum class Waits { No, ForAnything, AtExit };  // AtExit: its workers have ended well.
  RendezvousActions waits(ConnectionId from, Waits how, Instant now, WallTime wall);
  /// A torchrun node whose workers have ended well, and muster nodes have not: when it closes the
  /// run, as torchrun does at its end, that is not for them.
  bool finished_before_others(ConnectionId from) const;
  /// The state as torchrun nodes see it. The heartbeats of all muster nodes are renewed together,
  /// here and at most once per keep-alive interval.
  const RendezvousState& render(Instant now, WallTime wall);
  /// Changes with every change of what render() shows: what was made of it can be kept until then.
  std::uint64_t revision() const { return revision_; }
  /// Nobody has ever joined: what torchrun nodes see is "no state yet".
  bool untouched() const { return sequence_ == 0 && foreign_.empty() && !closed_; }
  /// Carries out a torchrun node's compare-and-set.
  ProposalResult propose(const StateProposal& proposal, Instant now, WallTime wall);

  /// Who has joined, who is missing, what is waited for; changes only when the state does.
  std::string_view reason() const;
  /// The same for one node that waits: with why it is not let in, if that is so.
  std::string reason_for(ConnectionId waiting) const;
  /// As the node is called here; nothing if it is not a member.
  const NodeName* name_of(ConnectionId connection) const;

  enum class Phase {
    Gathering,  // Nodes join.
    Preparing,  // The round has its members; rank 0 empties the workers' store.
    Running,    // Every muster node knows its rank.
    Draining,   // A restart has begun; torchrun nodes are still in the old round.
    Ended,      // For everybody, for good.
  };
  Phase phase() const;
  std::int64_t round() const { return round_; }
  bool closed() const { return closed_; }
  int restarts_used() const { return restarts_used_; }
  std::size_t members() const { return members_.size(); }
  std::size_t participants() const { return count(Place::Participant); }
  /// The torchrun node that is rank 0 of a complete round; nothing if a muster node is.
  const NodeName* torchrun_leader() const;
  /// How it ended, if it did; who failed first.
  const std::optional<RunEnded>& outcome() const { return outcome_; }
  /// Closed, and nobody is left in it who has not been told: the run id may be used again.
  bool forsaken() const;

 private:
  using MemberId = Liveness::Id;
  enum class Place {
    Away,         // torchrun: it left a round or the redundancy list, and is about to come back.
    Participant,  // In the round.
    Restarting,   // muster: told to stop its workers and to join again.
    LeftOut,      // muster: as Restarting, but the next round was complete before it was back.
    Waiting,      // Wants the next round.
    Redundant,    // No place for it; takes one that gets free.
    Standby,      // muster: marked as a spare.
    Finished,     // muster: its part of the job is done, and the round has gone on without it.
  };
  static constexpr std::size_t kPlaces = 8;

  struct Member {
    NodeName name;
    bool native = false;
    std::optional<ConnectionId> connection;
    Place place = Place::Away;
    std::uint64_t order = 0;  // Within its place.
    std::optional<int> last_rank;
    int rank = 0;
    // Muster nodes.
    std::string instance;
    int local_world_size = 1;
    std::string role;
    std::optional<int> preferred_rank;
    bool spare = false;
    bool hosts_rendezvous = false;
    bool succeeded = false;
    std::int64_t restarted_round = -1;  // Of the last RestartRound to it.
    std::optional<Instant> join_deadline;
    // torchrun nodes.
    WallTime heartbeat;        // As it wrote it.
    std::int64_t skew_us = 0;  // Its clock against ours.
    bool skew_told = false;
    Waits waits = Waits::No;
    bool finished = false;  // Its workers have ended well, in this round.
  };

  // rendezvous.cc: events.
  void on(const NodeJoined& event);
  void on(const KeptAlive& event);
  void on(const NodeLeft& event);
  void on(const WorkersFailed& event);
  void on(const RestartRequested& event);
  void on(const StoreReady& event);
  void on(const NodeFinished& event);
  void on(const ConnectionLost& event);
  void on(const RendezvousTimePassed& event);
  NodeName name_for(const NodeJoined& event) const;
  std::optional<JoinRefused> refusal_of(const NodeJoined& event) const;
  void join_again(MemberId id, const NodeJoined& event, bool reconnected);
  void join_deadlines();

  // rendezvous_members.cc
  MemberId add_member(const NodeName& name, bool native);
  void bind(MemberId id, ConnectionId connection);
  void place(MemberId id, Place where);
  void erase(MemberId id, std::string_view why = "it gave up");
  void gone(MemberId id, RestartCause cause, const std::string& what);
  void touch(MemberId id);
  void set_join_deadline(MemberId id, std::optional<Instant> deadline);
  Member* from(ConnectionId connection, MemberId* id = nullptr);
  std::size_t count(Place where) const { return places_[static_cast<std::size_t>(where)].size(); }
  const std::map<std::uint64_t, MemberId>& at(Place where) const {
    return places_[static_cast<std::size_t>(where)];
  }
  void changed() { dirty_ = reason_dirty_ = true; }

  // rendezvous_round.cc: the rules.
  void settle();
  bool settle_complete();
  bool settle_gathering();
  bool admit_one();
  bool admit_spare();
  bool admit(MemberId id);
  std::optional<MemberId> first_native(Place where) const;
  std::size_t expected() const;
  std::size_t spare_target() const;
  bool may_complete() const;
  void complete_round();
  void prepare_round();
  void number_workers(const std::vector<MemberId>& ids, const std::vector<std::size_t>& by_rank);
  void announce_round();
  RoundComplete announcement(const Member& member) const;
  void begin_restart(RestartCause cause, const NodeName& who, const std::string& what);
  void let_go(MemberId id);
  void next_round();
  void end_run(bool succeeded, std::optional<NodeName> who, const std::string& why);
  void end_if_finished();
  void end_if_hopeless();
  bool first_round() const { return !had_round_; }
  /// Where there is a muster node, or a rule that needs them, they are known.
  const RunSettings& run() const;

  // rendezvous_c10d.cc
  void rebuild(WallTime wall);
  void renew_stamp(Instant now, WallTime wall);
  std::int64_t behind_us(const Member& member) const;
  bool renewed_by_us(const Member& member) const;
  bool needs_more_places(const StateOperation& operation, const StateProposal& proposal) const;
  void learn_skew(Member& member, WallTime wall);
  void drop_dead(const StateOperation& operation);
  bool may_apply(const StateOperation& operation, const StateProposal& proposal) const;
  bool counts_without_the_living(const StateOperation& operation) const;
  bool same_round_as(const RendezvousState& seen) const;
  void apply(const StateOperation& operation, const StateProposal& proposal, WallTime wall);
  MemberId torch_member(const StateOperation& operation, ConnectionId client, WallTime wall);
  void torch_leaves(MemberId id, const StateProposal& proposal);
  void torch_waits(MemberId id);
  void closed_by_torch();
  Duration torch_lease(const Member& member) const;

  std::string make_reason() const;
  std::string make_gathering_reason() const;
  std::string why_not_let_in(const Member& member) const;

  RendezvousSetup setup_;
  std::optional<RunSettings> run_;
  std::string run_from_ = "the host";
  Instant now_{};

  std::int64_t round_ = 0;
  bool complete_ = false;
  bool draining_ = false;
  bool preparing_ = false;
  std::optional<StoreAddress> store_;  // Of the round's workers.
  std::vector<WorkerRanks> workers_;   // By group rank; empty with a torchrun node in the round.
  bool closed_ = false;
  bool had_round_ = false;
  std::optional<Instant> deadline_;
  std::optional<WallTime> shown_deadline_;  // As torchrun nodes see it; made when first shown.
  std::size_t last_world_ = 0;
  /// Of the last complete round, unfinished, and members no more: for whom others wait.
  struct Lost {
    NodeName name;
    int rank = 0;
    std::string why;
  };
  std::vector<Lost> lost_;
  int restarts_used_ = 0;
  std::optional<std::pair<NodeName, std::string>> restart_cause_;  // Of the round to come.
  std::optional<RunEnded> outcome_;
  std::vector<ForeignAttribute> foreign_;

  std::map<MemberId, Member> members_;
  std::map<NodeName, MemberId> by_name_;
  std::map<std::string, MemberId> by_instance_;
  std::map<std::uint32_t, MemberId> by_connection_;
  std::array<std::map<std::uint64_t, MemberId>, kPlaces> places_;
  std::size_t natives_ = 0;
  std::size_t torch_redundant_ = 0;
  std::size_t succeeded_ = 0;
  std::uint64_t sequence_ = 0;
  MemberId next_id_ = 0;
  Liveness liveness_;
  std::set<std::pair<Instant, MemberId>> join_deadlines_;
  std::optional<Instant> spares_step_in_;  // Into a first round that lacks nodes.

  RendezvousActions actions_;
  RendezvousState shown_;
  bool dirty_ = true;
  std::optional<Instant> stamped_;  // When the heartbeats of muster nodes were renewed.
  WallTime stamp_;
  std::int64_t ahead_us_ = 0;  // The fastest clock of a torchrun node, if it is off by much.
  std::int64_t stamped_ahead_us_ = 0;
  bool slow_clocks_ = false;    // Somebody's heartbeat is renewed by us.
  std::set<MemberId> waiting_;  // torchrun nodes that wait for a key of the store's.
  std::uint64_t revision_ = 0;
  mutable std::string reason_;
  mutable bool reason_dirty_ = true;
};

}  // namespace muster

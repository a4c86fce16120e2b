// One run's rendezvous: who is in the round, with which rank, and when the round is complete.
//
// One state, two doors: muster nodes send events and are told the outcome (step); torchrun nodes
// read and compare-and-set the state as a whole (render, propose). Pure: no sockets, no threads, no
// clock, no log; the same events at the same instants always give the same actions. State table
// and pictures: docs/rendezvous.md.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/core/damping.h"
#include "rendezvous/core/kept_out.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/liveness.h"
#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/run_phase.h"
#include "rendezvous/core/run_record.h"
#include "rendezvous/core/run_view.h"
#include "rendezvous/core/torchrun_view.h"
#include "rendezvous/core/unseen_workers.h"

namespace muster {

namespace testing {
struct RendezvousBreaker;
}

/// What the host knows when the run begins.
struct RendezvousSetup {
  /// Without it the first muster node's count; until then the run is left to its torchrun nodes.
  std::optional<RunSettings> run;
  Duration lease = std::chrono::seconds(5);                // Of a muster node.
  Duration keep_alive_interval = std::chrono::seconds(5);  // Of torchrun nodes.
  Duration dead_after = std::chrono::seconds(15);          // torchrun: interval × attempts.
  /// Differs from that of the rendezvous before it, which counted rounds from 0, too. 0: unknown.
  std::int64_t life = 0;
  /// How long a member that can resume may be without a connection after its connection was closed.
  Duration closed_grace = std::chrono::milliseconds(500);
  /// Every round's generation is above this.
  std::int64_t generation_floor = 0;
  /// Rounds up to this generation were those of a run of this name that has ended: they are not
  /// taken up again.
  std::int64_t ended_generation = 0;
  std::size_t members = kMaxMembers;  // Nodes of either kind; beyond it, joins are refused.
  /// For rank 0 to say where the workers' store is; then another muster node is rank 0.
  Duration prepare_within = std::chrono::seconds(30);
  /// Whether take_changes() is asked for what is to be recorded.
  bool recorded = false;
  /// How long a host that begins with a record waits for the first of the run's nodes: the network
  /// may be up later than the host.
  Duration first_return = std::chrono::minutes(10);
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

  /// Begins as an earlier host has recorded it. Its nodes have a lease and 1 s to come back, from
  /// the first one on, which has 10 minutes. To be called before everything else.
  void restore(const RunRecord& record, const std::vector<MemberRecord>& members, Instant now);
  /// What is to be recorded since the last call, or since restore(); nothing if nothing is. A run
  /// without muster nodes is not recorded: torchrun nodes do not outlive their host.
  std::optional<RunChange> take_changes(Instant now);

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
  /// Whether the run goes on though this torchrun node closes it, which it does at its own end:
  /// muster nodes work in a round that it is not in, or that it has finished before them.
  bool ignores_close(ConnectionId from) const;
  /// Nobody could be heard for `length` until `now`, because this host was frozen: every lease
  /// begins anew.
  void was_away(Duration length, Instant now);
  /// The state as torchrun nodes see it. The heartbeats of all muster nodes are renewed together,
  /// here and at most once per keep-alive interval.
  const RendezvousState& render(Instant now, WallTime wall);
  /// Changes with every change of what render() shows: what was made of it can be kept until then.
  std::uint64_t revision() const { return torchrun_.revision(); }
  /// Nobody has ever joined: what torchrun nodes see is "no state yet".
  bool untouched() const { return sequence_ == 0 && torchrun_.foreign().empty() && !closed_; }
  /// Carries out a torchrun node's compare-and-set.
  ProposalResult propose(const StateProposal& proposal, Instant now, WallTime wall);

  /// Who has joined, who is missing, what is waited for; changes only when the state does.
  std::string_view reason() const;
  /// The same for one node that waits: with why it is not let in, if that is so.
  std::string reason_for(ConnectionId waiting) const;
  /// As the node is called here; nothing if it is not a member.
  const NodeName* name_of(ConnectionId connection) const;

  using Phase = RunPhase;
  Phase phase() const { return outcome_ ? Phase::Ended : round_phase_; }
  std::int64_t round() const { return round_; }
  bool closed() const { return closed_; }
  int restarts_used() const { return restarts_used_; }
  /// Of the newest complete round; 0 before the first one.
  std::int64_t generation() const { return generation_; }
  /// No round of this run has had a higher one, as far as is known here.
  std::int64_t highest_generation() const { return highest_generation_; }
  /// The nodes of a round that an earlier life of the host made are coming back.
  bool recovering() const { return round_phase_ == Phase::Recovering; }
  std::size_t members() const { return members_.size(); }
  std::size_t participants() const { return count(Place::Participant); }
  /// Nodes of the newest complete round.
  std::int64_t last_world() const { return static_cast<std::int64_t>(last_world_); }
  /// The torchrun node that is rank 0 of a complete round; nothing if a muster node is.
  const NodeName* torchrun_leader() const;
  /// How it ended, if it did; who failed first.
  const std::optional<RunEnded>& outcome() const { return outcome_; }
  /// Closed, and nobody is left in it who has not been told: the run id may be used again.
  bool forsaken() const;

  // For people: copies of what is known here, made when they are asked for.
  RunStanding run_state() const;
  /// All but the id and what the run's history knows.
  RunSummary summary() const;
  /// The same, with at most `nodes` nodes (and kMaxViewedNodes) from the `offset`th on.
  RunView view(std::size_t offset, std::size_t nodes, Instant now) const;
  std::array<std::size_t, kNodeStates> nodes_by_state() const;
  /// When the node was last heard that has been silent longest; nothing if nobody is waited for.
  std::optional<Instant> longest_unheard() const;
  /// Why an operator cannot have this now; empty if OperatorAsked would do it.
  std::string objection_to(const OperatorAsked& asked) const;
  /// Whether it changes anything if there is no objection: a node may be allowed in already.
  bool has_effect(const OperatorAsked& asked) const;
  /// What follows from the last thing that an operator has asked of a node, as sentences.
  const std::string& operator_answer() const { return operator_answer_; }
  /// Whether an operator keeps the node out, and by which name.
  std::optional<KeptOutEntry> kept_out(const NodeName& name) const { return kept_out_.find(name); }
  /// The group rank of a node in the newest complete round, also if it is lost since.
  std::optional<int> rank_of(const NodeName& name) const;

  /// Ends the run for everybody and forgets its members, because an invariant of this class does
  /// not hold: `invariant` says which. step() and the others do so themselves when they notice it;
  /// the caller does it after an exception.
  RendezvousActions abandon(std::string_view invariant);
  /// The invariant that was broken; nothing in a sound run.
  const std::optional<std::string>& broken() const { return broken_; }

 private:
  friend struct testing::RendezvousBreaker;
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
    Resuming,     // muster: in a round that an earlier life of the host made.
    HeldBack,     // muster: lost again and again, and not let in yet.
    KeptOut,      // muster: an operator keeps it out of the rounds.
  };
  static constexpr std::size_t kPlaces = 11;

  struct Member {
    MemberId id = 0;
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
    /// The connection on which it was told to join again: what was sent to it before may be lost.
    std::optional<ConnectionId> rejoins;
    std::optional<Instant> join_deadline;
    bool resumes = false;
    bool closed = false;                  // Its connection here was closed.
    std::optional<Instant> held_until;    // In HeldBack.
    std::optional<Instant> absent_until;  // Without a connection: lost at this instant.
    Instant absent_since{};               // If it is absent.
    // torchrun nodes.
    Waits waits = Waits::No;
    bool finished = false;  // Its workers have ended well, in this round.
  };

  // rendezvous.cc: events.
  void on(const NodeJoined& event);
  void on(const NodeResumed& event);
  void on(const KeptAlive& event);
  void on(const NodeLeft& event);
  void on(const WorkersFailed& event);
  void on(const RestartRequested& event);
  void on(const StoreReady& event);
  void on(const NodeFinished& event);
  void on(const ConnectionLost& event);
  void on(const RendezvousTimePassed& event);
  void on(const OperatorAsked& event);
  NodeName name_for(const NodeJoined& event) const;
  std::optional<JoinRefused> refusal_of(const NodeJoined& event) const;
  Member* enter(const NodeJoined& event);
  void hear_count(int told);
  void join_again(MemberId id, const NodeJoined& event, bool reconnected);
  void note_stopped(const NodeJoined& event);
  void join_deadlines();
  void prepare_deadline();

  // rendezvous_members.cc
  MemberId add_member(const NodeName& name, bool native);
  void bind(MemberId id, ConnectionId connection);
  void place(MemberId id, Place where);
  void erase(MemberId id, std::string_view why = "it gave up");
  void gone(MemberId id, RestartCause cause, const std::string& what);
  void touch(MemberId id);
  void set_join_deadline(MemberId id, std::optional<Instant> deadline);
  void set_absent(MemberId id, std::optional<Instant> until);
  bool participant_is_absent() const;
  bool hold_back(MemberId id);
  void set_held(MemberId id, std::optional<Instant> until);
  void let_in_again(MemberId id);
  /// Those outside the rounds that an operator's text means.
  std::vector<MemberId> outside_as(const std::string& node) const;
  void release_held();
  bool let_in_if_needed();
  void forgive_pause(Duration length);
  Member* from(ConnectionId connection);
  const Member* from(ConnectionId connection) const;
  /// Null if there is no such member. Of ids that were collected before something else happened.
  Member* find(MemberId id);
  /// The same for an id that stands in an index: null breaks an invariant, and the run ends.
  Member* known(MemberId id);
  const Member* known(MemberId id) const;
  Member* named(const NodeName& name);
  const Member* named(const NodeName& name) const;
  /// Notes that an invariant does not hold. The event at hand goes on; then the run ends.
  void violated(std::string_view invariant) const;
  void advance(Instant now) { now_ = std::max(now_, now); }
  RendezvousActions take_actions();
  /// The first member of a place for which `wanted` holds; null if there is none.
  template <typename Wanted>
  const Member* first_in(Place where, const Wanted& wanted) const {
    for (const auto& [order, id] : at(where))
      if (const Member* member = known(id); member != nullptr && wanted(*member)) return member;
    return nullptr;
  }
  /// `visit` must not move, add or erase a member.
  template <typename Visit>
  void for_each_in(Place where, const Visit& visit) const {
    for (const auto& [order, id] : at(where))
      if (const Member* member = known(id); member != nullptr) visit(*member);
  }
  std::size_t count(Place where) const { return places_[static_cast<std::size_t>(where)].size(); }
  const std::map<std::uint64_t, MemberId>& at(Place where) const {
    return places_[static_cast<std::size_t>(where)];
  }
  void changed() { dirty_ = reason_dirty_ = record_dirty_ = true; }

  // rendezvous_kept_out.cc: nodes that an operator keeps out.
  std::string objection_to_node(const OperatorAsked& asked) const;
  std::string objection_to_allowing(const std::string& node) const;
  void keep_out(const std::string& node, KeptOutHow how);
  void allow(const std::string& node);
  bool goes_out(MemberId id);
  bool restart_without_excluded();
  std::string describe_kept_out(const std::string& node, KeptOutHow how) const;
  std::string why_kept_out(const Member& member) const;

  // rendezvous_round.cc: the rules.
  void settle();
  bool settle_complete();
  bool settle_gathering();
  bool admit_one();
  bool admit_spare();
  bool admit(const Member& member);
  const Member* first_native(Place where) const;
  std::size_t expected() const;
  std::size_t spare_target() const;
  bool is_held_up() const;
  bool may_complete() const;
  void complete_round();
  void park_waiting();
  void prepare_round();
  void pass_over_rank_0(const NodeName& who, const std::string& what);
  const Member* rank_0() const;
  void number_workers(const std::vector<const Member*>& by_rank);
  void announce_round(const Member* knows_it = nullptr);
  RoundComplete announcement(const Member& member, ConnectionId to) const;
  void begin_restart(RestartCause cause, const NodeName& who, const std::string& what);
  void let_go(const Member& member);
  void next_round();
  void end_run(bool succeeded, std::optional<NodeName> who, const std::string& why);
  std::string why_no_restart(const std::string& failure) const;
  void end_if_finished();
  void end_if_hopeless();
  bool first_round() const { return !had_round_; }
  /// The round has its members.
  bool complete() const { return is_complete(round_phase_); }
  bool preparing() const { return round_phase_ == Phase::Preparing; }
  bool draining() const { return round_phase_ == Phase::Draining; }
  void move_to(Phase next);
  /// Where there is a muster node, or a rule that needs them, they are known.
  const RunSettings& run() const;

  // rendezvous_resume.cc: nodes on a new connection, also after the host has begun anew.
  void resume_member(const Member& member, const NodeResumed& event);
  void tell_to_rejoin(ConnectionId to, std::string why);
  bool may_recover(const NodeResumed& event) const;
  void recover(const NodeJoined& join, const NodeResumed& event);
  bool same_recovery(const NodeResumed& event) const;
  void finish_recovery();
  void adopt_round();
  void give_up_recovery(const std::string& why);
  struct Recovery;
  std::optional<std::pair<NodeName, std::string>> count_lost_failure(const Recovery& recovery);

  // rendezvous_record.cc: what outlives the host.
  RunRecord make_record() const;
  std::optional<MemberRecord> make_record_of(const NodeName& name) const;
  void restore_member(const MemberRecord& record);
  void restore_round();
  void expect_workers(const std::vector<MemberRecord>& members);
  void expect_members(Duration within);
  void first_is_back();
  bool is_outdated_by(const NodeResumed& event) const;
  void forget_restored_round();
  void note_return(const Member& member);
  /// Its record may have changed.
  void unrecorded(const NodeName& name) {
    if (setup_.recorded) unrecorded_.insert(name);
  }

  // rendezvous_c10d.cc
  void rebuild(WallTime wall);
  std::vector<TorchrunView::Node> viewed(std::initializer_list<Place> places) const;
  static TorchrunView::Listed listed(const Member* member);
  std::string refusal_of(const TorchrunView::Understood& understood, const StateProposal& proposal,
                         const Member* client, const Member* about) const;
  bool needs_more_places(const StateOperation& operation, const StateProposal& proposal) const;
  void drop_dead(const StateOperation& operation);
  bool may_apply(const StateOperation& operation, const StateProposal& proposal) const;
  bool counts_without_the_living(const StateOperation& operation) const;
  void apply(const StateOperation& operation, const StateProposal& proposal, WallTime wall);
  Member* torch_member(const StateOperation& operation, ConnectionId client, WallTime wall);
  void torch_leaves(MemberId id, const StateProposal& proposal);
  void torch_waits(MemberId id);
  void closed_by_torch();

  // rendezvous_view.cc
  NodeState node_state(const Member& member) const;
  NodeView view_of(const Member& member, Instant now) const;
  void add_missing(RunView& view, Instant now) const;

  std::string make_reason() const;
  std::string make_gathering_reason() const;
  std::string why_not_let_in(const Member& member) const;

  RendezvousSetup setup_;
  std::optional<RunSettings> run_;
  std::string run_from_ = "the host";
  Instant now_{};

  std::int64_t round_ = 0;
  /// Of the round: torchrun nodes see it also when the run has ended. Never Ended.
  Phase round_phase_ = Phase::Gathering;
  std::optional<Instant> prepared_by_;  // While rank 0 prepares the store.
  int prepare_failures_ = 0;            // In a row, over rounds.
  std::optional<StoreAddress> store_;   // Of the round's workers.
  std::vector<WorkerRanks> workers_;    // By group rank; empty with a torchrun node in the round.
  bool closed_ = false;
  bool had_round_ = false;
  std::optional<Instant> deadline_;
  std::size_t last_world_ = 0;
  UnseenWorkers unseen_;
  /// Of the last complete round, unfinished, and members no more: for whom others wait.
  struct Lost {
    NodeName name;
    int rank = 0;
    std::string why;
    Instant at{};
  };
  std::vector<Lost> lost_;
  int restarts_used_ = 0;
  std::optional<std::pair<NodeName, std::string>> restart_cause_;  // Of the round to come.
  std::optional<RunEnded> outcome_;
  mutable std::optional<std::string> violated_;  // Noted in this event: the run is to end.
  std::optional<std::string> broken_;            // It ended the run.

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
  std::set<std::pair<Instant, MemberId>> absent_;
  std::set<std::pair<Instant, MemberId>> held_;
  Damping damping_;
  KeptOut kept_out_;
  StrikeList strikes_;
  bool excluded_may_work_ = false;  // The round that runs may have an excluded node.
  std::string operator_answer_;
  std::optional<Instant> paused_until_;  // This process did nothing for long, until then.

  /// A round of an earlier life of the host: its nodes resume, each with its rank.
  struct Recovery {
    std::int64_t round = 0;
    std::int64_t generation = 0;
    int world = 1;
    std::optional<StoreAddress> store;
    Instant deadline{};
    int restart_count = 0;  // The highest that a node was told.
    struct Node {
      MemberId id = 0;
      std::optional<WorkerRanks> workers;
    };
    std::map<int, Node> by_rank;
    std::optional<std::pair<NodeName, std::string>> failure;  // The first one that was told.
  };
  std::optional<Recovery> recovery_;
  std::int64_t generation_ = 0;
  std::int64_t highest_generation_ = 0;    // Also the floor, and what nodes know.
  std::int64_t told_generation_ = 0;       // The highest that nodes know.
  std::optional<Instant> spares_step_in_;  // Into a first round that lacks nodes.

  std::optional<RunRecord> recorded_;  // What take_changes() has said last.
  std::optional<Instant> recorded_deadline_;
  std::map<NodeName, MemberRecord> recorded_members_;
  std::set<NodeName> unrecorded_;
  bool record_dirty_ = true;
  std::int64_t own_life_ = 0;  // Not that of the record, which an earlier host has told nodes, too.
  /// The generation of the round that was restored, until this host has made one.
  std::optional<std::int64_t> restored_generation_;
  std::set<MemberId> awaited_;   // Members of a restored running round that have not come back.
  bool nobody_is_back_ = false;  // Of a restored run.
  /// Restored while its round was prepared: the host before may have completed the round without
  /// recording it.
  bool may_be_complete_ = false;
  std::optional<Duration> last_call_left_;  // Of the restored last call.

  RendezvousActions actions_;
  TorchrunView torchrun_;
  bool dirty_ = true;  // What the view shows.
  mutable std::string reason_;
  mutable bool reason_dirty_ = true;
};

}  // namespace muster

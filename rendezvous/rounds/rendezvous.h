// The rendezvous of one run: which nodes are in the round, with which rank, and when the round is
// complete.
//
// One state has two doors. Muster nodes send events and get messages (step); torchrun nodes read
// the whole state and compare-and-set it (render, propose). Pure: no sockets, no threads, no clock,
// no log; the same events at the same instants always give the same actions. State table and
// pictures: docs/rendezvous_rules.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/rounds/damping.h"
#include "rendezvous/rounds/first_command.h"
#include "rendezvous/rounds/kept_out.h"
#include "rendezvous/rounds/lost_node.h"
#include "rendezvous/rounds/member_table.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/rounds/rendezvous_setup.h"
#include "rendezvous/rounds/run_phase.h"
#include "rendezvous/rounds/run_record.h"
#include "rendezvous/rounds/run_view.h"
#include "rendezvous/rounds/unseen_workers.h"
#include "rendezvous/torchrun/torchrun_view.h"

namespace muster {

namespace testing {
struct RendezvousBreaker;
}

class Rendezvous {
 public:
  explicit Rendezvous(const RendezvousSetup& setup);

  /// Begins with the record of an earlier host. The first node has 10 minutes to come back. After
  /// that the other nodes have a lease and 1 s. Must be called before all other functions.
  void restore(const RunRecord& record, const std::vector<MemberRecord>& members, Instant now);
  /// The changes to record since the last call, or since restore(); empty if there are none. A run
  /// without muster nodes is not recorded: torchrun nodes do not outlive their host.
  std::optional<RunChange> take_changes(Instant now);
  /// The next take_changes() returns the record, even if nothing has changed in it.
  void record_again();

  /// Handles one event. `now` never goes backwards between calls.
  RendezvousActions step(const RendezvousEvent& event, Instant now);
  /// When step(RendezvousTimePassed) is next needed.
  std::optional<Instant> next_deadline() const;

  /// A torchrun node's connection sent any request (a node reads the state once a second). Counts
  /// as a sign of life if the host renews the node's heartbeat because the node's clock is slow.
  void heard(ConnectionId from, Instant now);
  /// A torchrun node's connection began or stopped waiting for a key of the store. While it waits,
  /// the node cannot send anything else, not even a heartbeat: it counts as alive as long as the
  /// connection is open.
  using Waits = StoreWait;
  RendezvousActions waits(ConnectionId from, Waits how, Instant now, WallTime wall);
  /// Whether the run goes on although this torchrun node closes it, as torchrun does at its own
  /// end. It goes on if muster nodes still work in the round, and this node is not in that round or
  /// has already finished its part.
  bool ignores_close(ConnectionId from) const;
  /// This host was frozen for `length` until `now` and could not receive anything: every lease
  /// begins anew.
  void host_was_frozen(Duration length, Instant now);
  /// The state as torchrun nodes see it. Renews the heartbeats of all muster nodes together, at
  /// most once per keep-alive interval.
  const RendezvousState& render(Instant now, WallTime wall);
  /// Changes with every change of the state that render() returns. Encodings of that state can be
  /// cached until then.
  std::uint64_t revision() const { return torchrun_.revision(); }
  /// No node has ever joined: torchrun nodes see "no state yet".
  bool untouched() const {
    return !members_.had_members() && torchrun_.foreign().empty() && !closed_;
  }
  /// Applies a torchrun node's compare-and-set.
  ProposalResult propose(const StateProposal& proposal, Instant now, WallTime wall);

  /// Which nodes have joined, which are missing, and what the run waits for. Changes only when the
  /// state changes.
  std::string_view reason() const;
  /// reason() for one waiting node, with the reason why that node is not let in, if it is not.
  std::string reason_for(ConnectionId waiting) const;
  /// When the last of the members is given up; now or earlier if there is none. Empty: one is here.
  std::optional<Instant> deserted_by() const;
  /// The name of the node in this run; null if the connection has no member.
  const NodeName* name_of(ConnectionId connection) const;
  /// Whether the connection's node has joined and waits for a round: a further join repeats that.
  bool is_waiting(ConnectionId connection) const;

  using Phase = RunPhase;
  Phase phase() const { return outcome_ ? Phase::Ended : round_phase_; }
  std::int64_t round() const { return round_; }
  bool closed() const { return closed_; }
  int restarts_used() const { return restarts_used_; }
  /// The generation of the newest complete round; 0 before the first one.
  std::int64_t generation() const { return generation_; }
  /// The highest generation of any round of this run that this host knows of.
  std::int64_t highest_generation() const { return highest_generation_; }
  /// The host was restarted, and the nodes of a round that it does not know are resuming.
  bool recovering() const { return round_phase_ == Phase::Recovering; }
  std::size_t members() const { return members_.size(); }
  std::size_t participants() const { return members_.count(Place::Participant); }
  /// The number of nodes of the newest complete round.
  std::int64_t last_world() const { return static_cast<std::int64_t>(last_world_); }
  /// The torchrun node that is rank 0 of a complete round; null if rank 0 is a muster node.
  const NodeName* torchrun_leader() const;
  /// How the run ended and which node failed first; empty while the run goes on.
  const std::optional<RunEnded>& outcome() const { return outcome_; }
  /// The run is over, and every node that is left in it knows that: the run id may be used again.
  bool is_reusable() const;
  /// The run has ended, and the node that joins was in it: it must not begin the run again.
  bool missed_the_end(const NodeJoined& event) const;
  bool has_other_settings(const RunSettings& settings) const { return run_ && *run_ != settings; }

  // Views for people: copies, made on request.
  RunStanding run_state() const;
  /// Everything but the id and the fields that come from the run's history.
  RunSummary summary() const;
  /// The summary and at most `nodes` nodes (kMaxViewedNodes at most) from the `offset`th one on.
  RunView view(std::size_t offset, std::size_t nodes, Instant now) const;
  std::array<std::size_t, kNodeStates> nodes_by_state() const;
  /// The last sign of life of the node that has been silent longest; empty if no node is watched.
  std::optional<Instant> longest_unheard() const;
  /// Why this request of an operator is refused now; empty if it is not.
  std::string objection_to(const OperatorAsked& asked) const;
  /// Whether a request without an objection changes anything: a node may be allowed in already.
  bool has_effect(const OperatorAsked& asked) const;
  /// The consequences of the last request about a node, as sentences for the operator.
  const std::string& operator_answer() const { return operator_answer_; }
  /// The entry by which an operator keeps the node out; empty if none does.
  std::optional<KeptOutEntry> kept_out(const NodeName& name) const { return kept_out_.find(name); }
  /// The group rank of a node in the newest complete round, also if the node has been lost since.
  std::optional<int> rank_of(const NodeName& name) const;

  /// Ends the run for all nodes and forgets its members, because an invariant of this class is
  /// broken; `invariant` names it. step() and the other functions call it themselves when they
  /// notice a broken invariant. The caller calls it after an exception.
  RendezvousActions abandon(std::string_view invariant);
  /// The invariant that was broken; empty in a sound run.
  const std::optional<std::string>& broken() const { return broken_; }
  /// Whether the counts of the members agree with a scan of all members. For tests: it is slow.
  bool counts_are_right() const { return members_.counts_are_right(); }

 private:
  friend struct testing::RendezvousBreaker;
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
  std::optional<JoinRefused> refusal_of(const NodeJoined& event, bool resumes = false) const;
  Member* register_member(const NodeJoined& event);
  void raise_restart_count(int reported);
  void fail_round(const Member& member, const std::string& what);
  void join_again(Member& member, const NodeJoined& event, bool reconnected);
  void update_unseen_workers(const NodeJoined& event);
  void note_command(const NodeJoined& event, const NodeName& name);
  void compare_command(const NodeJoined& event);
  void join_deadlines();
  void prepare_deadline();

  // rendezvous_members.cc
  bool closed_with_all_others(const Member& member) const;
  void take_absent();
  void bind(Member& member, ConnectionId connection);
  void remove(Member& member, std::string_view why = "it gave up");
  void lose(Member& member, RestartCause cause, const std::string& what);
  void touch(const Member& member);
  bool address_has_newcomer(const Member& silent) const;
  bool hold_back(Member& member);
  void let_in_again(Member& member);
  /// The members outside the rounds that match an operator's text.
  std::vector<NodeName> members_outside(const std::string& node) const;
  void release_held();
  bool let_in_if_needed();
  void extend_deadlines_after_pause(Duration length);
  /// Records a broken invariant. The current event is handled to its end; then the run ends.
  void violated(std::string_view invariant) const;
  void advance(Instant now) { now_ = std::max(now_, now); }
  void begin_event();
  RendezvousActions take_actions();
  void changed() { ++revision_; }
  /// Changes with every change that people, torchrun nodes or the record may show.
  std::uint64_t revision_of_state() const { return revision_ + members_.revision(); }

  // rendezvous_kept_out.cc: nodes that an operator keeps out of the rounds.
  std::string objection_to_node(const OperatorAsked& asked) const;
  std::string objection_to_allowing(const std::string& node) const;
  void keep_out(const std::string& node, KeptOutHow how);
  void allow(const std::string& node);
  bool move_out_if_kept_out(Member& member);
  bool restart_without_excluded();
  std::string describe_kept_out(const std::string& node, KeptOutHow how) const;
  std::string why_kept_out(const Member& member) const;

  // rendezvous_round.cc: the rules of rounds.
  void apply_rules();
  bool apply_rules_to_complete_round();
  bool apply_rules_while_gathering();
  bool admit_one();
  bool admit_spare();
  bool admit(Member& member);
  Member* first_native(Place where);
  std::size_t expected() const;
  std::size_t spare_target() const;
  bool is_held_up() const;
  bool may_complete() const;
  void complete_round();
  void move_waiting_to_redundancy_list();
  void prepare_round();
  void drop_rank_0(const NodeName& who, const std::string& what);
  const Member* rank_0() const;
  void number_workers(const std::vector<const Member*>& by_rank);
  void announce_round(const Member* knows_it = nullptr);
  RoundComplete announcement(const Member& member, ConnectionId to) const;
  void begin_restart(RestartCause cause, const NodeName& who, const std::string& what);
  void release_from_exit_barrier(Member& member);
  void next_round();
  void end_run(bool succeeded, std::optional<NodeName> who, const std::string& why);
  std::string why_no_restart(const std::string& failure) const;
  void end_if_finished();
  void end_if_hopeless();
  bool first_round() const { return !had_round_; }
  bool complete() const { return is_complete(round_phase_); }
  bool preparing() const { return round_phase_ == Phase::Preparing; }
  bool draining() const { return round_phase_ == Phase::Draining; }
  void move_to(Phase next);
  /// The run's settings. Only for callers that know that they are there: the host or the first
  /// muster node has brought them. Missing settings are a broken invariant.
  const RunSettings& run() const;

  // rendezvous_resume.cc: nodes that resume on a new connection, also after a restart of the host.
  void resume_member(const Member& member, const NodeResumed& event);
  void send_rejoin(ConnectionId to, std::string why);
  void end_resume(const NodeResumed& event, const NodeName& who, std::string why);
  void count_late_failure(const NodeResumed& event, const NodeName& who);
  bool is_credible(std::int64_t reported) const { return reported <= setup_.most_reported; }
  bool may_recover(const NodeResumed& event) const;
  bool may_take_up(const NodeResumed& event) const;
  bool has_finished_elsewhere(const NodeResumed& event) const;
  void take_as_finished(const NodeJoined& join, const NodeResumed& event);
  void recover(const NodeJoined& join, const NodeResumed& event);
  bool same_recovery(const NodeResumed& event) const;
  void finish_recovery();
  void adopt_round();
  void cancel_recovery(const std::string& why);
  void note_return(const NodeJoined& event);
  std::size_t not_back() const;
  struct Recovery;
  bool adopt_restart_count(const Recovery& recovery);
  std::optional<std::pair<NodeName, std::string>> count_lost_failure(const Recovery& recovery);

  // rendezvous_record.cc: the durable state.
  RunRecord make_record(const RunSettings& settings) const;
  std::optional<MemberRecord> make_record_of(const NodeName& name) const;
  void restore_member(const MemberRecord& record);
  void restore_round();
  void expect_workers(const std::vector<MemberRecord>& members);
  void expect_members(Duration within);
  void first_is_back();
  bool is_outdated_by(const NodeResumed& event) const;
  void discard_restored_round();
  void handle_return(const Member& member);

  // rendezvous_c10d.cc
  void rebuild(WallTime wall);
  std::vector<TorchrunView::Node> viewed(std::initializer_list<Place> places) const;
  static TorchrunView::Listed listed(const Member* member);
  std::string refusal_of(const TorchrunView::Understood& understood, const StateProposal& proposal,
                         const Member* client, const Member* about) const;
  bool needs_more_places(const StateOperation& operation, const StateProposal& proposal) const;
  void remove_dead(const StateOperation& operation);
  bool may_apply(const StateOperation& operation, const StateProposal& proposal) const;
  bool miscounts_participants(const StateOperation& operation) const;
  void apply(const StateOperation& operation, const StateProposal& proposal, WallTime wall);
  Member* torch_member(const StateOperation& operation, ConnectionId client, WallTime wall);
  void torch_leaves(Member& member, const StateProposal& proposal);
  void torch_waits(Member& member);
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
  /// The phase of the round, never Ended: torchrun nodes see it also after the end of the run.
  Phase round_phase_ = Phase::Gathering;
  std::optional<Instant> prepared_by_;  // The deadline of rank 0, since it was asked for the store.
  int prepare_failures_ = 0;            // In a row, over several rounds.
  std::optional<StoreAddress> store_;   // The store of the round's workers.
  std::vector<WorkerRanks> workers_;    // By group rank; empty with a torchrun node in the round.
  bool closed_ = false;
  bool had_round_ = false;
  std::optional<Instant> deadline_;
  std::size_t last_world_ = 0;
  UnseenWorkers unseen_;
  std::vector<LostNode> lost_;  // Of the last complete round.
  int restarts_used_ = 0;
  /// The generation of the newest round, if no failure of it has cost a restart yet.
  std::optional<std::int64_t> uncounted_;
  std::optional<std::pair<NodeName, std::string>> restart_cause_;  // Why the next round is needed.
  std::optional<RunEnded> outcome_;
  std::set<std::string> at_the_end_;             // The instances of the members when the run ended.
  std::deque<std::string> lost_agents_;          // The instances of the last nodes that were lost.
  mutable std::optional<std::string> violated_;  // Broken in this event: the run must end.
  std::optional<std::string> broken_;            // The broken invariant that ended the run.

  MemberTable members_;
  Damping damping_;
  std::map<std::string, FirstCommand> first_commands_;  // By role.
  KeptOut kept_out_;
  StrikeList strikes_;
  bool excluded_may_work_ = false;  // The running round may have an excluded node.
  std::string operator_answer_;
  std::optional<Instant> paused_until_;  // The end of the last long pause of this process.

  /// A round that an earlier host made: its nodes resume, each with its rank.
  struct Recovery {
    std::int64_t round = 0;
    std::int64_t generation = 0;
    int world = 1;
    std::optional<StoreAddress> store;
    Instant begun{};
    Instant deadline{};
    Duration lease{};       // The longest one that a node of the round has reported.
    int restart_count = 0;  // The round's, as its nodes report it; the highest one.
    struct Node {
      MemberTable::Id id = 0;
      std::optional<WorkerRanks> workers;
    };
    std::map<int, Node> by_rank;
    std::optional<std::pair<NodeName, std::string>> failure;  // The first one that a node reported.
  };
  std::optional<Recovery> recovery_;
  /// After a restart of the host, for a short time: nodes that are still on their way back.
  struct Returns {
    Instant until{};
    std::int64_t generation = 0;  // Of the round that was not taken up again.
    std::size_t world = 0;        // The nodes of that round. 0: members_ has all of them.
    std::set<std::string> back;   // The instances of those that are back.
  };
  std::optional<Returns> returns_;
  std::size_t never_back_ = 0;  // Nodes of that round that have not come back in time.
  std::int64_t generation_ = 0;
  std::int64_t highest_generation_ = 0;    // At least the floor, and what nodes have reported.
  std::int64_t reported_generation_ = 0;   // The highest generation that a node has reported.
  std::optional<Instant> spares_step_in_;  // When spares fill a first round that lacks nodes.

  std::optional<RunRecord> recorded_;  // The record that take_changes() returned last.
  std::optional<Instant> recorded_deadline_;
  std::map<NodeName, MemberRecord> recorded_members_;
  bool record_change_ = true;               // take_changes() must look again.
  std::optional<std::uint64_t> looked_at_;  // revision_of_state() at take_changes().
  std::int64_t own_life_ = 0;  // This host's. A restored run goes on with the recorded one.
  std::optional<std::int64_t> restored_generation_;  // Until this host has completed a round.
  Duration round_lease_{};  // RunRecord::lease: an earlier host may have had a longer one.
  Instant last_return_{};   // When a member of a restored round has come back.
  std::set<MemberTable::Id>
      awaited_;                  // Members of a restored running round that have not come back.
  bool nobody_is_back_ = false;  // No node of a restored run has come back yet.
  /// The restored run was in phase Preparing: nodes may have been told their ranks nevertheless.
  bool may_be_complete_ = false;
  std::optional<Duration> last_call_left_;  // The remaining time of the restored last call.

  RendezvousActions actions_;
  TorchrunView torchrun_;
  std::uint64_t revision_ = 0;
  std::optional<std::uint64_t> rendered_;  // revision_of_state() as torchrun_ shows it.
  mutable std::string reason_;
  mutable std::optional<std::uint64_t> reasoned_;  // revision_of_state() of reason_.
};

}  // namespace muster

// The rendezvous of one run: which nodes are in the round, with which rank, and when the round is
// complete.
//
// One state has two doors. Muster nodes send events and get messages (step); torchrun nodes read
// the whole state and compare-and-set it (render, propose). This class hands each event to the
// class of rendezvous/rounds or rendezvous/torchrun that knows it. Pure: no sockets, no threads, no
// clock, no log; the same events at the same instants always give the same actions. State table and
// pictures: docs/rendezvous_rules.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/rounds/operator_objections.h"
#include "rendezvous/rounds/run_core.h"
#include "rendezvous/rounds/run_viewer.h"
#include "rendezvous/torchrun/torchrun_door.h"

namespace muster {

namespace testing {
struct RendezvousBreaker;
}

class Rendezvous {
 public:
  explicit Rendezvous(const RendezvousSetup& setup);

  /// Begins with the record of an earlier host. The first node has 10 minutes to come back. After
  /// that the other nodes have a lease and 1 s. Must be called before all other functions.
  /// Notices have their deadlines by the clock `wall`.
  void restore(const RunRecord& record, const std::vector<MemberRecord>& members, Instant now,
               WallTime wall = {});
  /// The changes to record since the last call, or since restore(); empty if there are none. A run
  /// without muster nodes is not recorded: torchrun nodes do not outlive their host.
  std::optional<RunChange> take_changes(Instant now) {
    return run_.journal.take_changes(run_, now);
  }
  /// The next take_changes() returns the record, even if nothing has changed in it.
  void record_again() { run_.journal.record_again(); }

  /// The nodes that wait learn that another one, which wanted to join, was refused before this
  /// class got to know of it.
  void note_refusal(const std::string& text) { run_.note_refusal(text); }
  /// Handles one event. `now` never goes backwards between calls.
  RendezvousActions step(const RendezvousEvent& event, Instant now);
  /// When step(RendezvousTimePassed) is next needed.
  std::optional<Instant> next_deadline() const { return run_.next_deadline(); }

  /// A torchrun node's connection sent any request (a node reads the state once a second). Counts
  /// as a sign of life if the host renews the node's heartbeat because the node's clock is slow.
  void note_request(ConnectionId from, Instant now);
  using Waits = StoreWait;
  /// A torchrun node's connection began or stopped waiting for a key of the store. While it waits,
  /// the node cannot send anything else, not even a heartbeat: it counts as alive as long as the
  /// connection is open.
  RendezvousActions waits(ConnectionId from, Waits how, Instant now, WallTime wall);
  /// Whether the run goes on although this torchrun node closes it, as torchrun does at its own
  /// end. It goes on if muster nodes still work in the round, and this node is not in that round or
  /// has already finished its part.
  bool ignores_close(ConnectionId from) const { return TorchrunDoor::ignores_close(run_, from); }
  /// This host was frozen for `length` until `now` and could not receive anything: every lease
  /// begins anew.
  void host_was_frozen(Duration length, Instant now);
  /// The state as torchrun nodes see it. Renews the heartbeats of all muster nodes together, at
  /// most once per keep-alive interval.
  const RendezvousState& render(Instant now, WallTime wall);
  /// Changes with every change of the state that render() returns. Encodings of that state can be
  /// cached until then.
  std::uint64_t revision() const { return view_.revision(); }
  /// No node has ever joined: torchrun nodes see "no state yet".
  bool untouched() const {
    return !run_.members.had_members() && view_.foreign().empty() && !run_.ending.closed;
  }
  /// Applies a torchrun node's compare-and-set.
  ProposalResult propose(const StateProposal& proposal, Instant now, WallTime wall);

  /// Which nodes have joined, which are missing, and what the run waits for. Changes only when the
  /// state changes.
  std::string_view reason() const { return run_.reason.text(run_); }
  /// reason() for one waiting node, with the reason why that node is not let in, if it is not.
  std::string reason_for(ConnectionId waiting) const { return run_.reason.text_for(run_, waiting); }
  /// When the last of the members is given up; now or earlier if there is none. Empty: one is here.
  std::optional<Instant> deserted_by() const;
  /// The name of the node in this run; null if the connection has no member.
  const NodeName* name_of(ConnectionId connection) const;
  /// Whether the connection's node has joined and waits for a round: a further join repeats that.
  bool is_waiting(ConnectionId connection) const;

  using Phase = RunPhase;
  Phase phase() const { return run_.phase(); }
  std::int64_t round() const { return run_.round.number; }
  bool closed() const { return run_.ending.closed; }
  int restarts_used() const { return run_.restarts.used; }
  const RestartCosts& restart_costs() const { return run_.restarts.ledger.costs(); }
  /// The generation of the newest complete round; 0 before the first one.
  std::int64_t generation() const { return run_.round.generation; }
  /// The highest generation of any round of this run that this host knows of.
  std::int64_t highest_generation() const { return run_.generations.highest; }
  /// The host was restarted, and the nodes of a round that it does not know are resuming.
  bool recovering() const { return run_.round.phase == Phase::Recovering; }
  std::size_t members() const { return run_.members.size(); }
  std::size_t participants() const { return run_.members.count(Place::Participant); }
  /// The number of nodes of the newest complete round.
  std::int64_t last_world() const { return static_cast<std::int64_t>(run_.round.world); }
  /// The torchrun node that is rank 0 of a complete round; null if rank 0 is a muster node.
  const NodeName* torchrun_leader() const;
  /// How the run ended and which node failed first; empty while the run goes on.
  const std::optional<RunEnded>& outcome() const { return run_.ending.outcome; }
  /// The run is over, and every node that is left in it knows that: the run id may be used again.
  bool is_reusable() const;
  /// The run has ended, and the node that joins was in it: it must not begin the run again.
  bool missed_the_end(const NodeJoined& event) const { return run_.ending.was_missed_by(event); }
  bool has_other_settings(const RunSettings& settings) const {
    return run_.settings && !agree(*run_.settings, settings);
  }

  // Views for people: copies, made on request.
  RunStanding run_state() const { return RunViewer(run_).run_state(); }
  /// Everything but the id and the fields that come from the run's history.
  RunSummary summary() const { return RunViewer(run_).summary(); }
  /// Of a restart policy; empty without one.
  std::optional<RestartBudgets> restart_budgets() const { return RunViewer(run_).budgets(); }
  /// The summary and at most `nodes` nodes (kMaxViewedNodes at most) from the `offset`th one on.
  RunView view(std::size_t offset, std::size_t nodes, Instant now) const {
    return RunViewer(run_).view(offset, nodes, now);
  }
  std::array<std::size_t, kNodeStates> nodes_by_state() const {
    return RunViewer(run_).nodes_by_state();
  }
  /// The last sign of life of the node that has been silent longest; empty if no node is watched.
  std::optional<Instant> longest_unheard() const { return run_.members.liveness().oldest(); }
  /// Why this request of an operator is refused now; empty if it is not.
  std::string objection_to(const OperatorAsked& asked) const {
    return OperatorObjections(run_).objection_to(asked);
  }
  /// Whether a request without an objection changes anything: a node may be allowed in already.
  bool has_effect(const OperatorAsked& asked) const {
    return OperatorObjections(run_).has_effect(asked);
  }
  /// The consequences of the last request about a node, as sentences for the operator.
  const std::string& operator_answer() const { return operator_answer_; }
  /// The entry by which an operator keeps the node out; empty if none does.
  std::optional<KeptOutEntry> kept_out(const NodeName& name) const {
    return run_.conduct.kept_out.find(name);
  }
  /// The group rank of a node in the newest complete round, also if the node has been lost since.
  std::optional<int> rank_of(const NodeName& name) const { return RunViewer(run_).rank_of(name); }
  /// The global rank of the first worker of this node; empty: it has none, or it is not known.
  std::optional<int> first_rank_of(const NodeName& name) const {
    const Member* member = run_.members.named(name);
    return member == nullptr ? std::nullopt : RunViewer(run_).first_rank_of(*member);
  }

  /// Ends the run for all nodes and forgets its members, because an invariant of this class is
  /// broken; `invariant` names it. step() and the other functions call it themselves when they
  /// notice a broken invariant. The caller calls it after an exception.
  RendezvousActions abandon(std::string_view invariant);
  /// The invariant that was broken; empty in a sound run.
  const std::optional<std::string>& broken() const { return broken_; }
  /// Whether the counts of the members agree with a scan of all members. For tests: it is slow.
  bool counts_are_right() const { return run_.members.counts_are_right(); }

 private:
  friend struct testing::RendezvousBreaker;

  void begin_event(Instant now);
  RendezvousActions take_actions();

  RunCore run_;
  TorchrunView view_;
  std::string operator_answer_;
  std::optional<std::string> broken_;  // The broken invariant that ended the run.
};

}  // namespace muster

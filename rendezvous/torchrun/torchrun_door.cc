#include "rendezvous/torchrun/torchrun_door.h"

#include <algorithm>

#include "base/seconds_text.h"
#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {
namespace {

using Kind = StateOperation::Kind;

TorchrunView::Listed listed(const Member* member) {
  using Listed = TorchrunView::Listed;
  if (member == nullptr) return Listed::Nowhere;
  switch (member->place) {
    case Place::Away:
      return Listed::Away;
    case Place::Participant:
      return Listed::Participant;
    case Place::Waiting:
      return Listed::Waiting;
    case Place::Redundant:
      return Listed::Redundant;
    default:
      return Listed::Elsewhere;
  }
}

}  // namespace

TorchrunView& TorchrunDoor::view() {
  view_.follow(run_);
  return view_;
}

void TorchrunDoor::note_request(ConnectionId client) {
  const Member* member = run_.members.from(client);
  // For other torchrun nodes only their heartbeats count: every torchrun node takes a node with a
  // stale heartbeat for dead.
  if (member != nullptr && !member->native && view().is_slow(member->id))
    MemberWatch(run_).touch(*member);
}

void TorchrunDoor::waits(ConnectionId client, StoreWait how, WallTime wall) {
  Member* member = run_.members.from(client);
  if (member == nullptr || member->native) return;
  member->waits = how;
  MemberWatch(run_).touch(*member);
  if (how == StoreWait::No) {
    view().end_wait(member->id, wall);
    run_.changed();
  } else {
    view().begin_wait(member->id);
  }
  if (how == StoreWait::AtExit) {
    // No worker has started while the round is being prepared.
    member->finished = !run_.preparing();
    run_.members.mark_unrecorded(member->name);
    run_.journal.look_again();
    if (run_.ending.outcome)
      run_.send(ReleaseFromExitBarrier{client});  // Further nodes will not come.
    else if (run_.draining() && member->place == Place::Participant)
      RoundRules(run_).release_from_exit_barrier(*member);
  }
  RoundRules(run_).apply_rules();
}

bool TorchrunDoor::ignores_close(const RunCore& run, ConnectionId client) {
  if (!run.complete() || run.ending.outcome) return false;
  const Member* closes = run.members.from(client);
  const bool works = closes != nullptr && !closes->finished &&
                     (closes->place == Place::Participant || closes->place == Place::Away ||
                      closes->place == Place::Waiting);
  if (works) return false;
  return run.members.first_in(Place::Participant, [](const Member& member) {
    return member.native && !member.succeeded;
  }) != nullptr;
}

const RendezvousState& TorchrunDoor::render(WallTime wall) {
  const bool renewed = view().renew_if_due(run_.now, wall, run_.members.counts().natives > 0);
  if (renewed || !view().shows(run_)) rebuild(wall);
  return view_.shown();
}

void TorchrunDoor::rebuild(WallTime wall) {
  TorchrunView::Run run{.revision = run_.whole_revision(),
                        .round = run_.round.number,
                        .complete = run_.complete(),
                        .closed = run_.ending.closed};
  // torchrun nodes try to complete a round whose last call is over, again and again without a
  // pause. So the view has no deadline while the round is held up: the host completes it later.
  if (run_.last_call.end && run_.is_held_up())
    view().reset_deadline();
  else if (run_.last_call.end)
    run.last_call_left = *run_.last_call.end - run_.now;
  run.participants = viewed({Place::Participant});
  run.wait_list = viewed({Place::Restarting, Place::Waiting});
  run.redundancy_list =
      viewed({Place::LeftOut, Place::Redundant, Place::Standby, Place::HeldBack, Place::KeptOut});
  for (const auto& [id, member] : run_.members)
    if (member.place != Place::Away && member.place != Place::Finished)
      run.alive.push_back({id, &member.name, member.native, member.rank});
  view().rebuild(run, wall);
}

std::vector<TorchrunView::Node> TorchrunDoor::viewed(std::initializer_list<Place> places) const {
  std::vector<TorchrunView::Node> nodes;
  for (const Place where : places)
    run_.members.for_each_in(where, [&nodes](const Member& member) {
      nodes.push_back({member.id, &member.name, member.native, member.rank});
    });
  return nodes;
}

ProposalResult TorchrunDoor::propose(const StateProposal& proposal, WallTime wall) {
  using Understood = TorchrunView::Understood;
  ProposalResult result;
  const Member* client = run_.members.from(proposal.from);
  const auto writer = client != nullptr ? std::optional(client->name) : std::nullopt;
  const Understood understood = TorchrunView::understand(proposal, writer);
  const StateOperation& operation = understood.operation;
  const bool is_step = understood.kind == Understood::Kind::Step;
  const Member* about = is_step && operation.node ? run_.members.named(*operation.node) : nullptr;
  if (about != nullptr && !about->native && about->connection &&
      *about->connection != proposal.from) {
    // The node belongs to another connection: this is a replay, or a second process of that name.
    return result;
  }
  result.refusal = refusal_of(understood, proposal, client, about);
  if (!result.refusal.empty()) {
    result.verdict = ProposalVerdict::Refused;
    return result;
  }
  if (is_step) {
    remove_dead(operation);
    RoundRules(run_).apply_rules();
  }
  const bool misjudged = is_step && miscounts_participants(operation);
  // The heartbeat shows the writer's clock. With that, the view makes the other nodes look alive to
  // the writer, and its next proposal will count them.
  if (misjudged && operation.heartbeat) torch_member(operation, proposal.from, wall);
  if (is_step && !misjudged && may_apply(operation, proposal)) {
    if (proposal.proposed.foreign != proposal.seen.foreign)
      view().set_foreign(proposal.proposed.foreign);
    apply(operation, proposal, wall);
    RoundRules(run_).apply_rules();
    result.verdict = ProposalVerdict::Merged;
  }
  if (!view().shows(run_)) rebuild(wall);
  if (same_content(view_.shown(), proposal.proposed)) result.verdict = ProposalVerdict::Accepted;
  return result;
}

std::string TorchrunDoor::refusal_of(const TorchrunView::Understood& understood,
                                     const StateProposal& proposal, const Member* client,
                                     const Member* about) const {
  using Understood = TorchrunView::Understood;
  const bool is_muster =
      (client != nullptr && client->native) || (about != nullptr && about->native);
  if (understood.kind == Understood::Kind::Unknown || is_muster)
    return "it is no step that a torchrun node takes, or changes a muster node";
  const StateOperation& operation = understood.operation;
  if (understood.kind != Understood::Kind::Step || !operation.node) return {};
  if (needs_more_places(operation, proposal))
    return "node " + to_string(*operation.node) + " has a larger maximum than --nnodes=" +
           std::to_string(run_.known_settings().min_nodes) + ":" +
           std::to_string(run_.known_settings().max_nodes) +
           ", and would make the others restart again and again";
  if (about != nullptr) return {};
  if (run_.members.size() >= run_.setup.members)
    return "the run has " + std::to_string(run_.setup.members) + " nodes";
  // Agents of torchrun that are started again and again at one address would restart the others
  // each time. They cannot be told to wait.
  const bool are_enough = !run_.settings || run_.members.count(Place::Participant) >=
                                                static_cast<std::size_t>(run_.settings->min_nodes);
  const auto hold = run_.conduct.damping.hold_of_address(operation.node->addr, run_.now);
  if (operation.kind != Kind::AddToWaitList || !run_.complete() || !are_enough ||
      hold.until <= run_.now)
    return {};
  return "agents at the address of " + to_string(*operation.node) +
         " were gone soon after they had come, " + std::to_string(hold.losses) +
         " times, and restarted the others: the next one may join in " +
         seconds_text(hold.until - run_.now);
}

/// A node that goes onto the wait list although all places are taken has a larger maximum. The
/// other nodes would restart for it in vain, again and again as long as it waits.
bool TorchrunDoor::needs_more_places(const StateOperation& operation,
                                     const StateProposal& proposal) const {
  const RendezvousState& state = proposal.proposed;  // Without the nodes that look dead to it.
  return operation.kind == Kind::AddToWaitList && run_.settings && state.complete &&
         state.participants.size() >= static_cast<std::size_t>(run_.settings->max_nodes);
}

/// Removes the nodes that the writer takes for dead, but only if they have been silent here, too:
/// the writer's clock may be wrong.
void TorchrunDoor::remove_dead(const StateOperation& operation) {
  for (const NodeName& name : operation.dropped) {
    Member* member = run_.members.named(name);
    if (member == nullptr || member->native || member->waits != StoreWait::No) continue;
    if (run_.members.liveness().standing(member->id, run_.now) == Liveness::Standing::OnTime)
      continue;
    MemberWatch(run_).lose(*member, RestartCause::NodeLost,
                           "torchrun nodes do not hear it any more");
  }
}

/// Without the run's settings, only the writer knows whether the round is full or may be completed.
/// But the writer counts wrong if it takes living participants for dead because a clock is off.
bool TorchrunDoor::miscounts_participants(const StateOperation& operation) const {
  if (run_.settings || run_.complete() || !TorchrunView::counts_participants(operation.kind))
    return false;
  return std::any_of(operation.dropped.begin(), operation.dropped.end(), [&](const NodeName& name) {
    const Member* member = run_.members.named(name);
    return member != nullptr && member->place == Place::Participant;
  });
}

bool TorchrunDoor::may_apply(const StateOperation& operation, const StateProposal& proposal) {
  using Applies = TorchrunView::Applies;
  const TorchrunView::Situation situation{
      .round = run_.round.number,
      .complete = run_.complete(),
      .closed = run_.ending.closed,
      .has_settings = run_.settings.has_value(),
      .participants = run_.members.count(Place::Participant),
      .node = listed(operation.node ? run_.members.named(*operation.node) : nullptr)};
  const Applies applies = TorchrunView::applies(operation, proposal, situation);
  if (applies != Applies::IfRoundIsAsSeen) return applies == Applies::Yes;
  return view().is_round_as_seen(proposal.seen, situation, viewed({Place::Participant}));
}

/// The node of the operation, which becomes a member if it is new. Null if the operation names no
/// node.
Member* TorchrunDoor::torch_member(const StateOperation& operation, ConnectionId client,
                                   WallTime wall) {
  if (!operation.node) return nullptr;
  Member* member = run_.members.named(*operation.node);
  if (member == nullptr) {
    member = &run_.members.add(*operation.node, false);
    view().add(member->id);
    member->came_at = run_.now;
  }
  // One connection could serve several nodes: it belongs to the first one.
  if (run_.members.from(client) == nullptr) MemberWatch(run_).bind(*member, client);
  if (operation.heartbeat) {
    const auto skew_us = view().handle_heartbeat(member->id, *operation.heartbeat, run_.now, wall);
    if (skew_us) run_.send(ClockSkewSeen{member->name, *skew_us});
  }
  MemberWatch(run_).touch(*member);
  run_.changed();
  return member;
}

void TorchrunDoor::apply(const StateOperation& operation, const StateProposal& proposal,
                         WallTime wall) {
  const RendezvousState& proposed = proposal.proposed;
  if (operation.kind == Kind::MarkClosed) return closed_by_torch();
  if (operation.kind == Kind::MarkComplete) {
    // The writer has a smaller minimum than the run: apply_rules() removes the
    // deadline, and the round goes on waiting.
    if (run_.settings &&
        static_cast<int>(run_.members.count(Place::Participant)) < run_.settings->min_nodes)
      return;
    if (run_.settings) run_.last_call.end = run_.now;  // apply_rules() may still admit nodes.
    run_.changed();
    if (!run_.settings && run_.members.count(Place::Participant) > 0)
      RoundRules(run_).complete_round();
    return;
  }
  Member* member = torch_member(operation, proposal.from, wall);
  if (member == nullptr) return;
  switch (operation.kind) {
    case Kind::KeepAlive:
      break;
    case Kind::AddToParticipants:
      member->finished = false;
      // The round is full but is not complete yet: one of its nodes is absent, or nodes of the
      // previous round may still have workers.
      if (run_.settings && member->place != Place::Participant &&
          run_.members.count(Place::Participant) >=
              static_cast<std::size_t>(run_.settings->max_nodes)) {
        run_.members.set_place(*member, Place::Redundant);
        break;
      }
      run_.members.set_place(*member, Place::Participant);
      if (run_.settings) break;
      run_.last_call.propose(proposed.deadline);
      if (!proposed.complete) break;
      RoundRules(run_).complete_round();
      // This join took the last place, so the round is full.
      RoundRules(run_).move_waiting_to_redundancy_list();
      break;
    case Kind::AddToWaitList:
      torch_waits(*member);
      break;
    case Kind::AddToRedundancyList:
      run_.members.set_place(*member, Place::Redundant);
      break;
    case Kind::RemoveFromParticipants:
      torch_leaves(*member, proposal);
      break;
    case Kind::RemoveFromWaitList:
      MemberWatch(run_).remove(*member);
      break;
    // torchrun puts the node onto the wait list next.
    case Kind::RemoveFromRedundancyList:
      run_.members.set_place(*member, Place::Away);
      break;
    case Kind::MarkComplete:
    case Kind::MarkClosed:
      break;
  }
}

void TorchrunDoor::torch_leaves(Member& member, const StateProposal& proposal) {
  if (!run_.complete()) {
    MemberWatch(run_).remove(member);
    if (!run_.settings) run_.last_call.propose(proposal.proposed.deadline);
    return;
  }
  run_.members.set_place(member, Place::Away);
  if (run_.members.counts().natives > 0)
    RoundRules(run_).begin_restart(RestartCause::Requested, member.name,
                                   "it left the round to restart");
}

void TorchrunDoor::torch_waits(Member& member) {
  run_.members.set_place(member, Place::Waiting);
  member.ended_a_round = true;  // torchrun nodes restart for each node that waits.
  if (run_.members.counts().natives == 0 || !run_.settings ||
      run_.settings->scale_policy != ScalePolicy::Now || run_.members.counts().succeeded > 0)
    return;
  RoundRules(run_).begin_restart(RestartCause::NodeJoined, member.name, "it wants to join");
}

void TorchrunDoor::closed_by_torch() {
  if (run_.ending.closed) return;
  run_.ending.closed = true;
  std::vector<Member*> outside;
  for (auto& [id, member] : run_.members) {
    if (!member.native || member.succeeded) continue;
    // The round of resuming nodes may go on: adopt_round() sends RunClosed later.
    if (member.place == Place::Resuming) continue;
    const bool in_round = member.place == Place::Participant && run_.complete();
    if (!in_round) outside.push_back(&member);
    // A node that does not know its rank yet would give up: announce_round() sends
    // RunClosed later.
    if (member.connection && !(in_round && run_.preparing()))
      run_.send(RunClosed{*member.connection});
  }
  for (Member* member : outside)
    MemberWatch(run_).remove(*member, "a torchrun node has closed the run");
  run_.changed();
}

}  // namespace muster

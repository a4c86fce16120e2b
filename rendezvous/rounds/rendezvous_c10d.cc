// The c10d door: applies the operations of torchrun nodes. torchrun_view.h renders the state that
// these nodes see, and derives the operations from their proposals.

#include <algorithm>

#include "base/seconds_text.h"
#include "rendezvous/rounds/rendezvous.h"

namespace muster {
namespace {

using Kind = StateOperation::Kind;

}  // namespace

void Rendezvous::heard(ConnectionId client, Instant now) {
  advance(now);
  const Member* member = members_.from(client);
  // For other torchrun nodes only their heartbeats count: every torchrun node takes a node with a
  // stale heartbeat for dead.
  if (member != nullptr && !member->native && torchrun_.is_slow(member->id)) touch(*member);
}

RendezvousActions Rendezvous::waits(ConnectionId client, StoreWait how, Instant now,
                                    WallTime wall) {
  advance(now);
  begin_event();
  Member* member = members_.from(client);
  if (member == nullptr || member->native) return take_actions();
  member->waits = how;
  touch(*member);
  if (how == StoreWait::No) {
    torchrun_.end_wait(member->id, wall);
    changed();
  } else {
    torchrun_.begin_wait(member->id);
  }
  if (how == StoreWait::AtExit) {
    member->finished = !preparing();  // No worker has started while the round is being prepared.
    members_.mark_unrecorded(member->name);
    record_change_ = true;
    if (outcome_)
      actions_.push_back(ReleaseFromExitBarrier{client});  // Further nodes will not come.
    else if (draining() && member->place == Place::Participant)
      release_from_exit_barrier(*member);
  }
  apply_rules();
  return take_actions();
}

bool Rendezvous::ignores_close(ConnectionId client) const {
  if (!complete() || outcome_) return false;
  const Member* closes = members_.from(client);
  const bool works = closes != nullptr && !closes->finished &&
                     (closes->place == Place::Participant || closes->place == Place::Away ||
                      closes->place == Place::Waiting);
  if (works) return false;
  return members_.first_in(Place::Participant, [](const Member& member) {
    return member.native && !member.succeeded;
  }) != nullptr;
}

const RendezvousState& Rendezvous::render(Instant now, WallTime wall) {
  advance(now);
  const bool renewed = torchrun_.renew_if_due(now, wall, members_.counts().natives > 0);
  if (renewed || rendered_ != revision_of_state()) rebuild(wall);
  return torchrun_.shown();
}

void Rendezvous::rebuild(WallTime wall) {
  TorchrunView::Run run{.round = round_, .complete = complete(), .closed = closed_};
  // torchrun nodes try to complete a round whose last call is over, again and again without a
  // pause. So the view has no deadline while the round is held up: the host completes it later.
  if (deadline_ && is_held_up())
    torchrun_.reset_deadline();
  else if (deadline_)
    run.last_call_left = *deadline_ - now_;
  run.participants = viewed({Place::Participant});
  run.wait_list = viewed({Place::Restarting, Place::Waiting});
  run.redundancy_list =
      viewed({Place::LeftOut, Place::Redundant, Place::Standby, Place::HeldBack, Place::KeptOut});
  for (const auto& [id, member] : members_)
    if (member.place != Place::Away && member.place != Place::Finished)
      run.alive.push_back({id, &member.name, member.native, member.rank});
  torchrun_.rebuild(run, wall);
  rendered_ = revision_of_state();
}

std::vector<TorchrunView::Node> Rendezvous::viewed(std::initializer_list<Place> places) const {
  std::vector<TorchrunView::Node> nodes;
  for (const Place where : places)
    members_.for_each_in(where, [&nodes](const Member& member) {
      nodes.push_back({member.id, &member.name, member.native, member.rank});
    });
  return nodes;
}

ProposalResult Rendezvous::propose(const StateProposal& proposal, Instant now, WallTime wall) {
  using Understood = TorchrunView::Understood;
  advance(now);
  begin_event();
  ProposalResult result;
  const Member* client = members_.from(proposal.from);
  const auto writer = client != nullptr ? std::optional(client->name) : std::nullopt;
  const Understood understood = TorchrunView::understand(proposal, writer);
  const StateOperation& operation = understood.operation;
  const bool is_step = understood.kind == Understood::Kind::Step;
  const Member* about = is_step && operation.node ? members_.named(*operation.node) : nullptr;
  if (about != nullptr && !about->native && about->connection &&
      *about->connection != proposal.from) {
    // The node belongs to another connection: this is a replay, or a second process of that name.
    result.actions = take_actions();
    return result;
  }
  result.refusal = refusal_of(understood, proposal, client, about);
  if (!result.refusal.empty()) {
    result.verdict = ProposalVerdict::Refused;
    return result;
  }
  if (is_step) {
    remove_dead(operation);
    apply_rules();
  }
  const bool misjudged = is_step && miscounts_participants(operation);
  // The heartbeat shows the writer's clock. With that, the view makes the other nodes look alive to
  // the writer, and its next proposal will count them.
  if (misjudged && operation.heartbeat) torch_member(operation, proposal.from, wall);
  if (is_step && !misjudged && may_apply(operation, proposal)) {
    if (proposal.proposed.foreign != proposal.seen.foreign)
      torchrun_.set_foreign(proposal.proposed.foreign);
    apply(operation, proposal, wall);
    apply_rules();
    result.verdict = ProposalVerdict::Merged;
  }
  if (rendered_ != revision_of_state()) rebuild(wall);
  if (same_content(torchrun_.shown(), proposal.proposed))
    result.verdict = ProposalVerdict::Accepted;
  result.actions = take_actions();
  return result;
}

std::string Rendezvous::refusal_of(const TorchrunView::Understood& understood,
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
    return "node " + to_string(*operation.node) +
           " has a larger maximum than --nnodes=" + std::to_string(run().min_nodes) + ":" +
           std::to_string(run().max_nodes) + ", and would make the others restart again and again";
  if (about != nullptr) return {};
  if (members_.size() >= setup_.members)
    return "the run has " + std::to_string(setup_.members) + " nodes";
  // Agents of torchrun that are started again and again at one address would restart the others
  // each time. They cannot be told to wait.
  const bool are_enough =
      !run_ || members_.count(Place::Participant) >= static_cast<std::size_t>(run_->min_nodes);
  const auto hold = damping_.hold_of_address(operation.node->addr, now_);
  if (operation.kind != Kind::AddToWaitList || !complete() || !are_enough || hold.until <= now_)
    return {};
  return "agents at the address of " + to_string(*operation.node) +
         " were gone soon after they had come, " + std::to_string(hold.losses) +
         " times, and restarted the others: the next one may join in " +
         seconds_text(hold.until - now_);
}

/// A node that goes onto the wait list although all places are taken has a larger maximum. The
/// other nodes would restart for it in vain, again and again as long as it waits.
bool Rendezvous::needs_more_places(const StateOperation& operation,
                                   const StateProposal& proposal) const {
  const RendezvousState& state = proposal.proposed;  // Without the nodes that look dead to it.
  return operation.kind == Kind::AddToWaitList && run_ && state.complete &&
         state.participants.size() >= static_cast<std::size_t>(run_->max_nodes);
}

/// Removes the nodes that the writer takes for dead, but only if they have been silent here, too:
/// the writer's clock may be wrong.
void Rendezvous::remove_dead(const StateOperation& operation) {
  for (const NodeName& name : operation.dropped) {
    Member* member = members_.named(name);
    if (member == nullptr || member->native || member->waits != StoreWait::No) continue;
    if (members_.liveness().standing(member->id, now_) == Liveness::Standing::OnTime) continue;
    lose(*member, RestartCause::NodeLost, "torchrun nodes do not hear it any more");
  }
}

/// Without the run's settings, only the writer knows whether the round is full or may be completed.
/// But the writer counts wrong if it takes living participants for dead because a clock is off.
bool Rendezvous::miscounts_participants(const StateOperation& operation) const {
  if (run_ || complete() || !TorchrunView::counts_participants(operation.kind)) return false;
  return std::any_of(operation.dropped.begin(), operation.dropped.end(), [&](const NodeName& name) {
    const Member* member = members_.named(name);
    return member != nullptr && member->place == Place::Participant;
  });
}

TorchrunView::Listed Rendezvous::listed(const Member* member) {
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

bool Rendezvous::may_apply(const StateOperation& operation, const StateProposal& proposal) const {
  using Applies = TorchrunView::Applies;
  const TorchrunView::Situation situation{
      .round = round_,
      .complete = complete(),
      .closed = closed_,
      .has_settings = run_.has_value(),
      .participants = members_.count(Place::Participant),
      .node = listed(operation.node ? members_.named(*operation.node) : nullptr)};
  const Applies applies = TorchrunView::applies(operation, proposal, situation);
  if (applies != Applies::IfRoundIsAsSeen) return applies == Applies::Yes;
  return torchrun_.is_round_as_seen(proposal.seen, situation, viewed({Place::Participant}));
}

/// The node of the operation, which becomes a member if it is new. Null if the operation names no
/// node.
Member* Rendezvous::torch_member(const StateOperation& operation, ConnectionId client,
                                 WallTime wall) {
  if (!operation.node) return nullptr;
  Member* member = members_.named(*operation.node);
  if (member == nullptr) {
    member = &members_.add(*operation.node, false);
    torchrun_.add(member->id);
    member->came_at = now_;
  }
  // One connection could serve several nodes: it belongs to the first one.
  if (members_.from(client) == nullptr) bind(*member, client);
  if (operation.heartbeat) {
    const auto skew_us = torchrun_.handle_heartbeat(member->id, *operation.heartbeat, now_, wall);
    if (skew_us) actions_.push_back(ClockSkewSeen{member->name, *skew_us});
  }
  touch(*member);
  changed();
  return member;
}

void Rendezvous::apply(const StateOperation& operation, const StateProposal& proposal,
                       WallTime wall) {
  const RendezvousState& proposed = proposal.proposed;
  if (operation.kind == Kind::MarkClosed) return closed_by_torch();
  if (operation.kind == Kind::MarkComplete) {
    // The writer has a smaller minimum than the run: apply_rules() removes the deadline, and the
    // round goes on waiting.
    if (run_ && static_cast<int>(members_.count(Place::Participant)) < run_->min_nodes) return;
    if (run_) deadline_ = now_;  // Ends the last call; apply_rules() may still admit nodes.
    changed();
    if (!run_ && members_.count(Place::Participant) > 0) complete_round();
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
      if (run_ && member->place != Place::Participant &&
          members_.count(Place::Participant) >= static_cast<std::size_t>(run_->max_nodes)) {
        members_.set_place(*member, Place::Redundant);
        break;
      }
      members_.set_place(*member, Place::Participant);
      if (run_) break;
      torchrun_.set_deadline(proposed.deadline);
      if (!proposed.complete) break;
      complete_round();
      move_waiting_to_redundancy_list();  // This join took the last place, so the round is full.
      break;
    case Kind::AddToWaitList:
      torch_waits(*member);
      break;
    case Kind::AddToRedundancyList:
      members_.set_place(*member, Place::Redundant);
      break;
    case Kind::RemoveFromParticipants:
      torch_leaves(*member, proposal);
      break;
    case Kind::RemoveFromWaitList:
      remove(*member);
      break;
    // torchrun puts the node onto the wait list next.
    case Kind::RemoveFromRedundancyList:
      members_.set_place(*member, Place::Away);
      break;
    case Kind::MarkComplete:
    case Kind::MarkClosed:
      break;
  }
}

void Rendezvous::torch_leaves(Member& member, const StateProposal& proposal) {
  if (!complete()) {
    remove(member);
    if (!run_) torchrun_.set_deadline(proposal.proposed.deadline);
    return;
  }
  members_.set_place(member, Place::Away);
  if (members_.counts().natives > 0)
    begin_restart(RestartCause::Requested, member.name, "it left the round to restart");
}

void Rendezvous::torch_waits(Member& member) {
  members_.set_place(member, Place::Waiting);
  member.ended_a_round = true;  // torchrun nodes restart for each node that waits.
  if (members_.counts().natives == 0 || !run_ || run_->scale_policy != ScalePolicy::Now ||
      members_.counts().succeeded > 0)
    return;
  begin_restart(RestartCause::NodeJoined, member.name, "it wants to join");
}

void Rendezvous::closed_by_torch() {
  if (closed_) return;
  closed_ = true;
  std::vector<Member*> outside;
  for (auto& [id, member] : members_) {
    if (!member.native || member.succeeded) continue;
    // The round of resuming nodes may go on: adopt_round() sends RunClosed later.
    if (member.place == Place::Resuming) continue;
    const bool in_round = member.place == Place::Participant && complete();
    if (!in_round) outside.push_back(&member);
    // A node that does not know its rank yet would give up: announce_round() sends RunClosed later.
    if (member.connection && !(in_round && preparing()))
      actions_.push_back(RunClosed{*member.connection});
  }
  for (Member* member : outside)
    remove(*member, "a torchrun node has closed the run");
  changed();
}

}  // namespace muster

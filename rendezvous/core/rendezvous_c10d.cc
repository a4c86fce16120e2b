// The c10d door: the state as torchrun nodes see it, and what they may change in it.

#include <algorithm>

#include "rendezvous/core/rendezvous.h"

namespace muster {
namespace {

using Kind = StateOperation::Kind;

// Below, clocks are as good as equal. A node is dead to torchrun after 15 s; between two heartbeats
// there can be two intervals of 5 s, where a round begins; and a slow clock meets a fast one.
constexpr std::int64_t kSkewToCorrectUs = 2'000'000;
// What is less may also be a message that was slow: no line in the log.
constexpr std::int64_t kSkewToTellUs = 5'000'000;

std::int64_t microseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

void Rendezvous::heard(ConnectionId client, Instant now) {
  advance(now);
  const Member* member = from(client);
  // Of the others the heartbeat tells: one that goes stale is dead to every torchrun node.
  if (member != nullptr && !member->native && behind_us(*member) > 0) touch(member->id);
}

RendezvousActions Rendezvous::waits(ConnectionId client, Waits how, Instant now, WallTime wall) {
  advance(now);
  actions_.clear();
  Member* member = from(client);
  if (member == nullptr || member->native) return take_actions();
  member->waits = how;
  touch(member->id);
  if (how == Waits::No) {
    waiting_.erase(member->id);
    // Until it writes its next one, which may take it an interval.
    member->heartbeat = std::max(member->heartbeat, {wall.microseconds + ahead_us_});
    changed();
  } else {
    waiting_.insert(member->id);
  }
  if (how == Waits::AtExit) {
    member->finished = !preparing();  // Nobody works in a round that is being prepared.
    unrecorded(member->name);
    record_dirty_ = true;
    if (outcome_)
      actions_.push_back(LetGo{client});  // Who is not there yet will not come.
    else if (draining() && member->place == Place::Participant)
      let_go(*member);
  }
  settle();
  return take_actions();
}

bool Rendezvous::ignores_close(ConnectionId client) const {
  if (!complete() || outcome_) return false;
  const Member* closes = from(client);
  const bool works = closes != nullptr && !closes->finished &&
                     (closes->place == Place::Participant || closes->place == Place::Away ||
                      closes->place == Place::Waiting);
  if (works) return false;
  return first_in(Place::Participant, [](const Member& member) {
           return member.native && !member.succeeded;
         }) != nullptr;
}

const RendezvousState& Rendezvous::render(Instant now, WallTime wall) {
  advance(now);
  const bool due = !stamped_ || now - *stamped_ >= setup_.keep_alive_interval;
  if (due && (natives_ > 0 || slow_clocks_ || !waiting_.empty())) renew_stamp(now, wall);
  if (dirty_) rebuild(wall);
  return shown_;
}

void Rendezvous::renew_stamp(Instant now, WallTime wall) {
  stamped_ = now;
  stamped_ahead_us_ = ahead_us_;
  stamp_ = {wall.microseconds + ahead_us_};
  dirty_ = true;
}

/// How far its clock is behind the fastest, if so far that others might take it for dead.
std::int64_t Rendezvous::behind_us(const Member& member) const {
  const std::int64_t behind = ahead_us_ - member.skew_us;
  return behind > kSkewToCorrectUs ? behind : 0;
}

/// Its heartbeat: a muster node's, and that of a torchrun node that cannot do it, or not so that
/// all others see it.
bool Rendezvous::renewed_by_us(const Member& member) const {
  return member.native || behind_us(member) > 0 || member.waits != Waits::No;
}

void Rendezvous::rebuild(WallTime wall) {
  RendezvousState state{.round = round_, .complete = complete(), .closed = closed_};
  if (deadline_ && !shown_deadline_ && !complete())
    shown_deadline_ = WallTime{wall.microseconds + ahead_us_ + microseconds_of(*deadline_ - now_)};
  if (!complete()) state.deadline = shown_deadline_;
  for_each_in(Place::Participant, [&](const Member& member) {
    state.participants.add_new(member.name, complete() ? member.rank : 0);
  });
  for (const Place where : {Place::Restarting, Place::Waiting})
    for_each_in(where, [&](const Member& member) { state.wait_list.add_new(member.name); });
  for (const Place where :
       {Place::LeftOut, Place::Redundant, Place::Standby, Place::HeldBack, Place::KeptOut})
    for_each_in(where, [&](const Member& member) { state.redundancy_list.add_new(member.name); });
  for (const auto& [id, member] : members_) {
    if (member.place == Place::Away || member.place == Place::Finished) continue;
    // A slow clock's heartbeat looks dead to a fast one, and, shown as by the fast clock, is never
    // due to its owner. So as long as we hear the node we renew it, as that of a muster node.
    const bool ours = renewed_by_us(member);
    const WallTime at = ours ? std::max(stamp_, member.heartbeat) : member.heartbeat;
    state.last_heartbeats.add_new(member.name, at);
  }
  state.foreign = foreign_;
  shown_ = std::move(state);
  dirty_ = false;
  ++revision_;
}

void Rendezvous::learn_skew(Member& member, WallTime wall) {
  const std::int64_t before = ahead_us_;
  member.skew_us = member.heartbeat.microseconds - wall.microseconds;
  ahead_us_ = 0;
  for (const auto& [id, other] : members_)
    if (!other.native) ahead_us_ = std::max(ahead_us_, other.skew_us);
  if (ahead_us_ <= kSkewToCorrectUs) ahead_us_ = 0;
  // Not for every millisecond: the stamp of all muster nodes would change each time.
  if (before != 0 && std::abs(ahead_us_ - before) < kSkewToCorrectUs / 2) ahead_us_ = before;
  slow_clocks_ = false;
  for (auto& [id, other] : members_) {
    if (other.native) continue;
    slow_clocks_ = slow_clocks_ || behind_us(other) > 0;
    // The fastest has gone, and its own heartbeat counts again. While ours was shown it has written
    // none, so it would look dead: now it looks as if it had just written one.
    const bool was_behind = before - other.skew_us > kSkewToCorrectUs;
    if (was_behind && behind_us(other) == 0)
      other.heartbeat = std::max(other.heartbeat, {wall.microseconds + other.skew_us});
  }
  if (ahead_us_ != stamped_ahead_us_ || (slow_clocks_ && !stamped_)) renew_stamp(now_, wall);
  // By the fastest clock, the last call must not be over early.
  if (ahead_us_ != before && deadline_) shown_deadline_.reset();
  if (std::abs(member.skew_us) <= kSkewToTellUs || member.skew_told) return;
  member.skew_told = true;
  actions_.push_back(ClockSkewSeen{member.name, member.skew_us});
}

ProposalResult Rendezvous::propose(const StateProposal& proposal, Instant now, WallTime wall) {
  advance(now);
  actions_.clear();
  ProposalResult result;
  const Member* client = from(proposal.from);
  const auto writer = client != nullptr ? std::optional(client->name) : std::nullopt;
  const auto operation = explain(proposal.seen, proposal.proposed, writer);
  const bool idle = !operation && same_content(proposal.seen, proposal.proposed);
  const Member* about = operation && operation->node ? named(*operation->node) : nullptr;
  const bool native_name = about != nullptr && about->native;
  if (about != nullptr && !about->native && about->connection &&
      *about->connection != proposal.from) {
    // Another connection's node: its bytes are said again by somebody else.
    result.actions = take_actions();
    return result;
  }
  if ((!operation && !idle) || native_name || (client != nullptr && client->native)) {
    result.verdict = ProposalVerdict::Refused;
    result.refusal = "it is no step that a torchrun node takes, or changes a muster node";
    return result;
  }
  if (operation && operation->node && needs_more_places(*operation, proposal)) {
    result.verdict = ProposalVerdict::Refused;
    result.refusal = "node " + to_string(*operation->node) +
                     " has a larger maximum than --nnodes=" + std::to_string(run().min_nodes) +
                     ":" + std::to_string(run().max_nodes) +
                     ", and would make the others restart again and again";
    return result;
  }
  if (operation && operation->node && about == nullptr && members_.size() >= setup_.members) {
    result.verdict = ProposalVerdict::Refused;
    result.refusal = "the run has " + std::to_string(setup_.members) + " nodes";
    return result;
  }
  if (operation) {
    drop_dead(*operation);
    settle();
  }
  const bool misjudged = operation && counts_without_the_living(*operation);
  // Once its clock is known, the others look alive to it, and its next try is without that.
  if (misjudged && operation->heartbeat) torch_member(*operation, proposal.from, wall);
  if (operation && !misjudged && may_apply(*operation, proposal)) {
    if (proposal.proposed.foreign != proposal.seen.foreign) foreign_ = proposal.proposed.foreign;
    apply(*operation, proposal, wall);
    settle();
    result.verdict = ProposalVerdict::Merged;
  }
  if (dirty_) rebuild(wall);
  if (same_content(shown_, proposal.proposed)) result.verdict = ProposalVerdict::Accepted;
  result.actions = take_actions();
  return result;
}

/// Whoever waits for a place where all are taken has been given another maximum. Every other node
/// would restart for it, in vain, and again as long as it waits.
bool Rendezvous::needs_more_places(const StateOperation& operation,
                                   const StateProposal& proposal) const {
  const RendezvousState& state = proposal.proposed;  // Without those that it takes for dead.
  return operation.kind == Kind::AddToWaitList && run_ && state.complete &&
         state.participants.size() >= static_cast<std::size_t>(run_->max_nodes);
}

/// Only nodes that have been silent for us, too: the writer's clock may be wrong.
void Rendezvous::drop_dead(const StateOperation& operation) {
  for (const NodeName& name : operation.dropped) {
    const Member* member = named(name);
    if (member == nullptr || member->native || member->waits != Waits::No) continue;
    if (liveness_.standing(member->id, now_) == Liveness::Standing::OnTime) continue;
    gone(member->id, RestartCause::NodeLost, "torchrun nodes do not hear it any more");
  }
}

/// Without the run's settings it is the writer who knows whether the round is full, or may be
/// complete; and that it cannot tell if a clock that is off makes it take others for dead.
bool Rendezvous::counts_without_the_living(const StateOperation& operation) const {
  const bool counts = operation.kind == Kind::AddToParticipants ||
                      operation.kind == Kind::RemoveFromParticipants ||
                      operation.kind == Kind::MarkComplete;
  if (run_ || complete() || !counts) return false;
  return std::any_of(operation.dropped.begin(), operation.dropped.end(), [&](const NodeName& name) {
    const Member* member = named(name);
    return member != nullptr && member->place == Place::Participant;
  });
}

/// Whether nothing has changed since `seen` that the writer looked at when it joined or completed.
bool Rendezvous::same_round_as(const RendezvousState& seen) const {
  if (seen.round != round_ || seen.complete != complete() || seen.deadline != shown_deadline_ ||
      seen.participants.size() != count(Place::Participant))
    return false;
  std::set<NodeName> seen_names;
  for (const auto& [name, rank] : seen.participants)
    seen_names.insert(name);
  return first_in(Place::Participant, [&](const Member& member) {
           return !seen_names.contains(member.name);
         }) == nullptr;
}

bool Rendezvous::may_apply(const StateOperation& operation, const StateProposal& proposal) const {
  const Member* member = operation.node ? named(*operation.node) : nullptr;
  const auto now_in = [&](std::initializer_list<Place> places) {
    return member != nullptr &&
           std::find(places.begin(), places.end(), member->place) != places.end();
  };
  const bool absent = member == nullptr || now_in({Place::Away});
  const bool same_round = proposal.seen.round == round_;
  const auto taken = count(Place::Participant);
  switch (operation.kind) {
    case Kind::KeepAlive:
      return now_in({Place::Participant, Place::Waiting, Place::Redundant});
    case Kind::RemoveFromParticipants:
      return now_in({Place::Participant}) && same_round &&
             (complete() || run_ || same_round_as(proposal.seen));
    case Kind::RemoveFromWaitList:
      return now_in({Place::Waiting});
    case Kind::RemoveFromRedundancyList:
      return now_in({Place::Redundant});
    case Kind::AddToWaitList:
      return complete() && same_round && (absent || now_in({Place::Redundant})) &&
             taken <= proposal.seen.participants.size();
    case Kind::AddToRedundancyList:
      return complete() && same_round && absent && taken == proposal.seen.participants.size();
    case Kind::AddToParticipants:
      if (complete() || closed_ || proposal.proposed.round != round_) return false;
      if (!absent && !now_in({Place::Waiting, Place::Redundant})) return false;
      // With the run's minimum and maximum we take the steps that the writer would have taken.
      return run_ || proposal.seen.round != round_ || same_round_as(proposal.seen);
    case Kind::MarkComplete:
      return !complete() && same_round && (run_ || same_round_as(proposal.seen));
    case Kind::MarkClosed:
      return true;
  }
  return false;
}

/// The node that an operation is about, which becomes a member if it is new. Null if the operation
/// names no node.
Rendezvous::Member* Rendezvous::torch_member(const StateOperation& operation, ConnectionId client,
                                             WallTime wall) {
  if (!operation.node) return nullptr;
  Member* member = named(*operation.node);
  if (member == nullptr) member = known(add_member(*operation.node, false));
  if (member == nullptr) return nullptr;
  // One connection may in principle serve several nodes: the first is who it is.
  if (from(client) == nullptr) bind(member->id, client);
  if (operation.heartbeat) {
    member->heartbeat = *operation.heartbeat;
    learn_skew(*member, wall);
  }
  touch(member->id);
  changed();
  return member;
}

void Rendezvous::apply(const StateOperation& operation, const StateProposal& proposal,
                       WallTime wall) {
  const RendezvousState& proposed = proposal.proposed;
  if (operation.kind == Kind::MarkClosed) return closed_by_torch();
  if (operation.kind == Kind::MarkComplete) {
    // Its minimum is not the run's: the deadline goes, and it waits on.
    if (run_ && static_cast<int>(count(Place::Participant)) < run_->min_nodes) return;
    if (run_) deadline_ = now_;  // The last call is over; who else is let in is for settle().
    if (!run_ && count(Place::Participant) > 0) complete_round();
    return;
  }
  Member* member = torch_member(operation, proposal.from, wall);
  if (member == nullptr) return;
  const MemberId id = member->id;
  switch (operation.kind) {
    case Kind::KeepAlive:
      break;
    case Kind::AddToParticipants:
      member->finished = false;
      place(id, Place::Participant);
      if (run_) break;
      shown_deadline_ = proposed.deadline;
      if (proposed.complete) complete_round();
      break;
    case Kind::AddToWaitList:
      torch_waits(id);
      break;
    case Kind::AddToRedundancyList:
      place(id, Place::Redundant);
      break;
    case Kind::RemoveFromParticipants:
      torch_leaves(id, proposal);
      break;
    case Kind::RemoveFromWaitList:
      erase(id);
      break;
    // It goes on to the wait list at once.
    case Kind::RemoveFromRedundancyList:
      place(id, Place::Away);
      break;
    case Kind::MarkComplete:
    case Kind::MarkClosed:
      break;
  }
}

void Rendezvous::torch_leaves(MemberId id, const StateProposal& proposal) {
  if (!complete()) {
    erase(id);
    if (!run_) shown_deadline_ = proposal.proposed.deadline;
    return;
  }
  const Member* member = known(id);
  if (member == nullptr) return;
  const NodeName who = member->name;
  place(id, Place::Away);
  if (natives_ > 0) begin_restart(RestartCause::Requested, who, "it left the round to restart");
}

void Rendezvous::torch_waits(MemberId id) {
  const Member* member = known(id);
  if (member == nullptr) return;
  place(id, Place::Waiting);
  if (natives_ == 0 || !run_ || run_->scale_policy != ScalePolicy::Now || succeeded_ > 0) return;
  begin_restart(RestartCause::NodeJoined, NodeName(member->name), "it wants to join");
}

void Rendezvous::closed_by_torch() {
  if (closed_) return;
  closed_ = true;
  std::vector<MemberId> outside;
  for (const auto& [id, member] : members_) {
    if (!member.native || member.succeeded) continue;
    const bool in_round = member.place == Place::Participant && complete();
    if (!in_round) outside.push_back(id);
    // Who does not know yet that it is in the round would give up: announce_round() tells it.
    if (member.connection && !(in_round && preparing()))
      actions_.push_back(RunClosed{*member.connection});
  }
  for (const MemberId id : outside)
    erase(id, "a torchrun node has closed the run");
  changed();
}

}  // namespace muster

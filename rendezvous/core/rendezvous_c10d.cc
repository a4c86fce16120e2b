// The c10d door: the state as torchrun nodes see it, and what they may change in it.

#include <algorithm>

#include "rendezvous/core/check.h"
#include "rendezvous/core/rendezvous.h"

namespace muster {
namespace {

using Kind = StateOperation::Kind;

// Below, clocks are as good as equal. A node is dead to torchrun after 15 s; between two heartbeats
// there can be two intervals of 5 s, where a round begins; and a slow clock meets a fast one.
constexpr std::int64_t kSkewThatMattersUs = 2'000'000;
// What is less may also be a message that was slow: no line in the log.
constexpr std::int64_t kSkewToTellUs = 5'000'000;

std::int64_t microseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

void Rendezvous::heard(ConnectionId client, Instant now) {
  MUSTER_CHECK(now >= now_);
  now_ = now;
  MemberId id = 0;
  const Member* member = from(client, &id);
  // Of the others the heartbeat tells: one that goes stale is dead to every torchrun node.
  if (member != nullptr && !member->native && behind_us(*member) > 0) touch(id);
}

RendezvousActions Rendezvous::waits(ConnectionId client, Waits how, Instant now, WallTime wall) {
  MUSTER_CHECK(now >= now_);
  now_ = now;
  actions_.clear();
  MemberId id = 0;
  Member* member = from(client, &id);
  if (member == nullptr || member->native) return {};
  member->waits = how;
  touch(id);
  if (how == Waits::No) {
    waiting_.erase(id);
    // Until it writes its next one, which may take it an interval.
    member->heartbeat = std::max(member->heartbeat, {wall.microseconds + ahead_us_});
    changed();
  } else {
    waiting_.insert(id);
  }
  if (how == Waits::AtExit) {
    member->finished = true;
    if (outcome_)
      actions_.push_back(LetGo{client});  // Who is not there yet will not come.
    else if (draining_ && member->place == Place::Participant)
      let_go(id);
  }
  settle();
  return std::exchange(actions_, {});
}

bool Rendezvous::finished_before_others(ConnectionId client) const {
  const auto found = by_connection_.find(client.value);
  if (found == by_connection_.end() || !members_.at(found->second).finished) return false;
  return complete_ && !outcome_ &&
         std::any_of(at(Place::Participant).begin(), at(Place::Participant).end(),
                     [&](const auto& entry) {
                       const Member& member = members_.at(entry.second);
                       return member.native && !member.succeeded;
                     });
}

const RendezvousState& Rendezvous::render(Instant now, WallTime wall) {
  MUSTER_CHECK(now >= now_);
  now_ = now;
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
  return behind > kSkewThatMattersUs ? behind : 0;
}

/// Its heartbeat: a muster node's, and that of a torchrun node that cannot do it, or not so that
/// all others see it.
bool Rendezvous::renewed_by_us(const Member& member) const {
  return member.native || behind_us(member) > 0 || member.waits != Waits::No;
}

Duration Rendezvous::torch_lease(const Member& member) const {
  return setup_.dead_after + std::chrono::microseconds(behind_us(member));
}

void Rendezvous::rebuild(WallTime wall) {
  RendezvousState state{.round = round_, .complete = complete_, .closed = closed_};
  if (deadline_ && !shown_deadline_ && !complete_)
    shown_deadline_ = WallTime{wall.microseconds + ahead_us_ + microseconds(*deadline_ - now_)};
  if (!complete_) state.deadline = shown_deadline_;
  for (const auto& [order, id] : at(Place::Participant))
    state.participants.add_new(members_.at(id).name, complete_ ? members_.at(id).rank : 0);
  for (const Place where : {Place::Restarting, Place::Waiting})
    for (const auto& [order, id] : at(where))
      state.wait_list.add_new(members_.at(id).name);
  for (const Place where : {Place::LeftOut, Place::Redundant, Place::Standby})
    for (const auto& [order, id] : at(where))
      state.redundancy_list.add_new(members_.at(id).name);
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
  if (ahead_us_ <= kSkewThatMattersUs) ahead_us_ = 0;
  // Not for every millisecond: the stamp of all muster nodes would change each time.
  if (before != 0 && std::abs(ahead_us_ - before) < kSkewThatMattersUs / 2) ahead_us_ = before;
  slow_clocks_ = false;
  for (auto& [id, other] : members_) {
    if (other.native) continue;
    slow_clocks_ = slow_clocks_ || behind_us(other) > 0;
    // The fastest has gone, and its own heartbeat counts again. While ours was shown it has written
    // none, so it would look dead: now it looks as if it had just written one.
    const bool was_behind = before - other.skew_us > kSkewThatMattersUs;
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
  MUSTER_CHECK(now >= now_);
  now_ = now;
  actions_.clear();
  ProposalResult result;
  const Member* client = from(proposal.from);
  const auto writer = client != nullptr ? std::optional(client->name) : std::nullopt;
  const auto operation = explain(proposal.seen, proposal.proposed, writer);
  const bool idle = !operation && same_content(proposal.seen, proposal.proposed);
  const auto known =
      operation && operation->node ? by_name_.find(*operation->node) : by_name_.end();
  const bool native_name = known != by_name_.end() && members_.at(known->second).native;
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
  result.actions = std::exchange(actions_, {});
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
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || members_.at(found->second).native) continue;
    if (members_.at(found->second).waits != Waits::No) continue;
    const auto standing = liveness_.standing(found->second, now_);
    if (standing == Liveness::Standing::OnTime) continue;
    gone(found->second, RestartCause::NodeLost, "torchrun nodes do not hear it any more");
  }
}

/// Without the run's settings it is the writer who knows whether the round is full, or may be
/// complete; and that it cannot tell if a clock that is off makes it take others for dead.
bool Rendezvous::counts_without_the_living(const StateOperation& operation) const {
  const bool counts = operation.kind == Kind::AddToParticipants ||
                      operation.kind == Kind::RemoveFromParticipants ||
                      operation.kind == Kind::MarkComplete;
  if (run_ || complete_ || !counts) return false;
  return std::any_of(operation.dropped.begin(), operation.dropped.end(), [&](const NodeName& name) {
    const auto found = by_name_.find(name);
    return found != by_name_.end() && members_.at(found->second).place == Place::Participant;
  });
}

/// Whether nothing has changed since `seen` that the writer looked at when it joined or completed.
bool Rendezvous::same_round_as(const RendezvousState& seen) const {
  if (seen.round != round_ || seen.complete != complete_ || seen.deadline != shown_deadline_ ||
      seen.participants.size() != count(Place::Participant))
    return false;
  std::set<NodeName> known;
  for (const auto& [name, rank] : seen.participants)
    known.insert(name);
  return std::all_of(
      at(Place::Participant).begin(), at(Place::Participant).end(),
      [&](const auto& entry) { return known.contains(members_.at(entry.second).name); });
}

bool Rendezvous::may_apply(const StateOperation& operation, const StateProposal& proposal) const {
  const auto found = operation.node ? by_name_.find(*operation.node) : by_name_.end();
  const auto now_in = [&](std::initializer_list<Place> places) {
    return found != by_name_.end() && std::find(places.begin(), places.end(),
                                                members_.at(found->second).place) != places.end();
  };
  const bool absent = found == by_name_.end() || now_in({Place::Away});
  const bool same_round = proposal.seen.round == round_;
  const auto taken = count(Place::Participant);
  switch (operation.kind) {
    case Kind::KeepAlive:
      return now_in({Place::Participant, Place::Waiting, Place::Redundant});
    case Kind::RemoveFromParticipants:
      return now_in({Place::Participant}) && same_round &&
             (complete_ || run_ || same_round_as(proposal.seen));
    case Kind::RemoveFromWaitList:
      return now_in({Place::Waiting});
    case Kind::RemoveFromRedundancyList:
      return now_in({Place::Redundant});
    case Kind::AddToWaitList:
      return complete_ && same_round && (absent || now_in({Place::Redundant})) &&
             taken <= proposal.seen.participants.size();
    case Kind::AddToRedundancyList:
      return complete_ && same_round && absent && taken == proposal.seen.participants.size();
    case Kind::AddToParticipants:
      if (complete_ || closed_ || proposal.proposed.round != round_) return false;
      if (!absent && !now_in({Place::Waiting, Place::Redundant})) return false;
      // With the run's minimum and maximum we take the steps that the writer would have taken.
      return run_ || proposal.seen.round != round_ || same_round_as(proposal.seen);
    case Kind::MarkComplete:
      return !complete_ && same_round && (run_ || same_round_as(proposal.seen));
    case Kind::MarkClosed:
      return true;
  }
  return false;
}

Rendezvous::MemberId Rendezvous::torch_member(const StateOperation& operation, ConnectionId client,
                                              WallTime wall) {
  MUSTER_CHECK(operation.node.has_value());
  const auto found = by_name_.find(*operation.node);
  const MemberId id = found != by_name_.end() ? found->second : add_member(*operation.node, false);
  Member& member = members_.at(id);
  // One connection may in principle serve several nodes: the first is who it is.
  const auto bound = by_connection_.find(client.value);
  if (bound == by_connection_.end()) bind(id, client);
  if (operation.heartbeat) {
    member.heartbeat = *operation.heartbeat;
    learn_skew(member, wall);
  }
  touch(id);
  changed();
  return id;
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
  const MemberId id = torch_member(operation, proposal.from, wall);
  switch (operation.kind) {
    case Kind::KeepAlive:
      break;
    case Kind::AddToParticipants:
      members_.at(id).finished = false;
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
  if (!complete_) {
    erase(id);
    if (!run_) shown_deadline_ = proposal.proposed.deadline;
    return;
  }
  const NodeName who = members_.at(id).name;
  place(id, Place::Away);
  if (natives_ > 0) begin_restart(RestartCause::Requested, who, "it left the round to restart");
}

void Rendezvous::torch_waits(MemberId id) {
  place(id, Place::Waiting);
  if (natives_ == 0 || !run_ || run_->scale_policy != ScalePolicy::Now || succeeded_ > 0) return;
  begin_restart(RestartCause::NodeJoined, NodeName(members_.at(id).name), "it wants to join");
}

void Rendezvous::closed_by_torch() {
  if (closed_) return;
  closed_ = true;
  std::vector<MemberId> outside;
  for (const auto& [id, member] : members_) {
    if (!member.native || member.succeeded) continue;
    const bool in_round = member.place == Place::Participant && complete_;
    if (!in_round) outside.push_back(id);
    // Who does not know yet that it is in the round would give up: announce_round() tells it.
    if (member.connection && !(in_round && preparing_))
      actions_.push_back(RunClosed{*member.connection});
  }
  for (const MemberId id : outside)
    erase(id, "a torchrun node has closed the run");
  changed();
}

}  // namespace muster

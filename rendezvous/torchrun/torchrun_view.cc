#include "rendezvous/torchrun/torchrun_view.h"

#include <algorithm>
#include <cstdlib>

namespace muster {
namespace {

using Kind = StateOperation::Kind;

// Below this skew, clocks count as equal. torchrun takes a node for dead after 15 s. Between two
// heartbeats there may be two intervals of 5 s, when a round begins, and a slow clock may meet a
// fast one.
constexpr std::int64_t kSkewToCorrectUs = 2'000'000;
// A smaller skew may also come from a slow message, so it gets no line in the log.
constexpr std::int64_t kSkewToReportUs = 5'000'000;

std::int64_t microseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

void TorchrunView::follow(const RunCore& run) {
  if (members_revision_ != run.members.revision()) {
    members_revision_ = run.members.revision();
    const auto is_gone = [&](NodeId node) { return !run.members.contains(node); };
    std::erase_if(clocks_, [&](const auto& entry) { return is_gone(entry.first); });
    std::erase_if(waiting_, is_gone);
  }
  if (last_call_revision_ == run.last_call.revision) return;
  last_call_revision_ = run.last_call.revision;
  deadline_ = run.last_call.proposed;
  deadline_is_ours_ = false;
}

std::optional<std::int64_t> TorchrunView::handle_heartbeat(NodeId node, WallTime at, Instant now,
                                                           WallTime wall) {
  const auto found = clocks_.find(node);
  if (found == clocks_.end()) return std::nullopt;
  Clock& clock = found->second;
  clock.heartbeat = at;
  clock.skew_us = at.microseconds - wall.microseconds;
  const std::int64_t before = ahead_us_;
  ahead_us_ = measure_ahead();
  // Ignores small changes: otherwise the heartbeats of all muster nodes would change each time.
  if (before != 0 && std::abs(ahead_us_ - before) < kSkewToCorrectUs / 2) ahead_us_ = before;
  catch_up_with_fastest(before, wall);
  if (ahead_us_ != stamped_ahead_us_ || (slow_clocks_ && !stamped_)) renew_stamp(now, wall);
  // The deadline is made again: the last call must not be over early by the fastest clock.
  if (ahead_us_ != before && deadline_is_ours_) deadline_.reset();
  if (std::abs(clock.skew_us) <= kSkewToReportUs || clock.skew_reported) return std::nullopt;
  clock.skew_reported = true;
  return clock.skew_us;
}

std::int64_t TorchrunView::measure_ahead() const {
  std::int64_t ahead = 0;
  for (const auto& [id, clock] : clocks_)
    ahead = std::max(ahead, clock.skew_us);
  return ahead <= kSkewToCorrectUs ? 0 : ahead;
}

void TorchrunView::catch_up_with_fastest(std::int64_t ahead_before, WallTime wall) {
  slow_clocks_ = false;
  for (auto& [id, clock] : clocks_) {
    slow_clocks_ = slow_clocks_ || behind_us(clock) > 0;
    // The fastest clock is gone, so this node's own heartbeat is shown again. The node wrote none
    // while the view showed the renewed one, so it would look dead. It gets a fresh heartbeat.
    const bool was_behind = ahead_before - clock.skew_us > kSkewToCorrectUs;
    if (was_behind && behind_us(clock) == 0)
      clock.heartbeat = std::max(clock.heartbeat, {wall.microseconds + clock.skew_us});
  }
}

void TorchrunView::begin_wait(NodeId node) {
  waiting_.insert(node);
}

void TorchrunView::end_wait(NodeId node, WallTime wall) {
  waiting_.erase(node);
  // Holds until the node writes its next heartbeat, which may take a keep-alive interval.
  if (const auto found = clocks_.find(node); found != clocks_.end())
    found->second.heartbeat = std::max(found->second.heartbeat, {wall.microseconds + ahead_us_});
}

bool TorchrunView::is_slow(NodeId node) const {
  const auto found = clocks_.find(node);
  return found != clocks_.end() && behind_us(found->second) > 0;
}

/// How far a clock is behind the fastest one; 0 if that is so little that other nodes do not take
/// the clock's node for dead.
std::int64_t TorchrunView::behind_us(const Clock& clock) const {
  const std::int64_t behind = ahead_us_ - clock.skew_us;
  return behind > kSkewToCorrectUs ? behind : 0;
}

/// Whether the view renews the node's heartbeat: for a muster node, and for a torchrun node that
/// cannot write it now, or whose clock is too slow for other nodes.
bool TorchrunView::is_renewed(const Node& node) const {
  return node.native || is_slow(node.id) || waiting_.contains(node.id);
}

bool TorchrunView::renew_if_due(Instant now, WallTime wall, bool has_natives) {
  const bool due = !stamped_ || now - *stamped_ >= keep_alive_interval_;
  if (!due || (!has_natives && !slow_clocks_ && waiting_.empty())) return false;
  renew_stamp(now, wall);
  return true;
}

void TorchrunView::renew_stamp(Instant now, WallTime wall) {
  stamped_ = now;
  stamped_ahead_us_ = ahead_us_;
  stamp_ = {wall.microseconds + ahead_us_};
}

void TorchrunView::rebuild(const Run& run, WallTime wall) {
  RendezvousState state{.round = run.round, .complete = run.complete, .closed = run.closed};
  if (run.last_call_left && !deadline_ && !run.complete) {
    deadline_ = WallTime{wall.microseconds + ahead_us_ + microseconds_of(*run.last_call_left)};
    deadline_is_ours_ = true;
  }
  if (!run.complete) state.deadline = deadline_;
  for (const Node& node : run.participants)
    state.participants.add_new(*node.name, run.complete ? node.rank : 0);
  for (const Node& node : run.wait_list)
    state.wait_list.add_new(*node.name);
  for (const Node& node : run.redundancy_list)
    state.redundancy_list.add_new(*node.name);
  for (const Node& node : run.alive) {
    const auto clock = clocks_.find(node.id);
    const WallTime own = clock == clocks_.end() ? WallTime{} : clock->second.heartbeat;
    // To a node with a fast clock, the heartbeat of a slow clock looks dead. If the view shows that
    // heartbeat by the fast clock instead, its owner never thinks that a new one is due. So the
    // view renews it as long as the node is heard, like that of a muster node.
    state.last_heartbeats.add_new(*node.name, is_renewed(node) ? std::max(stamp_, own) : own);
  }
  state.foreign = foreign_;
  shown_ = std::move(state);
  shown_revision_ = run.revision;
  ++revision_;
}

TorchrunView::Understood TorchrunView::understand(const StateProposal& proposal,
                                                  const std::optional<NodeName>& writer) {
  auto operation = derive_operation(proposal.seen, proposal.proposed, writer);
  if (operation) return {Understood::Kind::Step, *std::move(operation)};
  const bool same = same_content(proposal.seen, proposal.proposed);
  return {same ? Understood::Kind::Nothing : Understood::Kind::Unknown, {}};
}

TorchrunView::Applies TorchrunView::applies(const StateOperation& operation,
                                            const StateProposal& proposal, const Situation& now) {
  const auto is = [&now](std::initializer_list<Listed> places) {
    return std::find(places.begin(), places.end(), now.node) != places.end();
  };
  const auto if_true = [](bool condition) { return condition ? Applies::Yes : Applies::No; };
  // If the run's minimum and maximum are known, the rules take the step that the writer would have
  // taken.
  const Applies counted = now.has_settings ? Applies::Yes : Applies::IfRoundIsAsSeen;
  const bool absent = is({Listed::Nowhere, Listed::Away});
  const bool same_round = proposal.seen.round == now.round;
  switch (operation.kind) {
    case Kind::KeepAlive:
      return if_true(is({Listed::Participant, Listed::Waiting, Listed::Redundant}));
    case Kind::RemoveFromParticipants:
      if (!is({Listed::Participant}) || !same_round) return Applies::No;
      return now.complete ? Applies::Yes : counted;
    case Kind::RemoveFromWaitList:
      return if_true(is({Listed::Waiting}));
    case Kind::RemoveFromRedundancyList:
      return if_true(is({Listed::Redundant}));
    case Kind::AddToWaitList:
      return if_true(now.complete && same_round && (absent || is({Listed::Redundant})) &&
                     now.participants <= proposal.seen.participants.size());
    case Kind::AddToRedundancyList:
      return if_true(now.complete && same_round && absent &&
                     now.participants == proposal.seen.participants.size());
    case Kind::AddToParticipants:
      if (now.complete || now.closed || proposal.proposed.round != now.round) return Applies::No;
      if (!absent && !is({Listed::Waiting, Listed::Redundant})) return Applies::No;
      if (same_round || now.has_settings) return counted;
      // The writer removed the dead nodes from the round that it saw, and began the next one alone.
      return if_true(now.participants + 1 == proposal.proposed.participants.size());
    case Kind::MarkComplete:
      return !now.complete && same_round ? counted : Applies::No;
    case Kind::MarkClosed:
      return Applies::Yes;
  }
  return Applies::No;
}

bool TorchrunView::is_round_as_seen(const RendezvousState& seen, const Situation& now,
                                    const std::vector<Node>& participants) const {
  if (seen.round != now.round || seen.complete != now.complete || seen.deadline != deadline_ ||
      seen.participants.size() != participants.size())
    return false;
  std::set<NodeName> names;
  for (const auto& [name, rank] : seen.participants)
    names.insert(name);
  return std::all_of(participants.begin(), participants.end(),
                     [&names](const Node& node) { return names.contains(*node.name); });
}

bool TorchrunView::counts_participants(Kind kind) {
  return kind == Kind::AddToParticipants || kind == Kind::RemoveFromParticipants ||
         kind == Kind::MarkComplete;
}

}  // namespace muster

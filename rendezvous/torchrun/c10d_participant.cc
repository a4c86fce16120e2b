#include "rendezvous/torchrun/c10d_participant.h"

#include <algorithm>

#include "base/check.h"
#include "base/seconds_text.h"
#include "rendezvous/rounds/round_ranks.h"

namespace muster {
namespace {

// As in torchrun: after its join timeout, a node tries for this long to remove itself from the
// state.
constexpr Duration kRollback = std::chrono::seconds(5);
// After this time every node has read the state: torchrun nodes read it once a second. A node that
// reads it after a member has left would count a wrong world size.
constexpr Duration kAllHaveReadState = std::chrono::seconds(2);
// torchrun works with a skew of up to 15 s; below 5 s, clocks count as equal.
constexpr std::int64_t kSkewThatMattersUs = 5'000'000;
constexpr std::size_t kNamesShown = 8;
// muster's own pauses after lost writes: they double with each lost write in a row.
constexpr Duration kLostPauseFirst = std::chrono::milliseconds(20);
constexpr Duration kMaxLostPause = std::chrono::seconds(1);

std::int64_t microseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

std::string nodes_text(int count) {
  return std::to_string(count) + (count == 1 ? " node" : " nodes");
}

/// The part `chance` of the time.
Duration part_of(Duration time, double chance) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, Duration::period>(time) * chance);
}

}  // namespace

Duration lost_write_pause(const RendezvousSettings& settings, int lost_before, double chance) {
  if (settings.cas_backoff > Duration{})
    return part_of(std::min(settings.cas_backoff, settings.keep_alive_interval), chance);
  const Duration most =
      std::min(kLostPauseFirst * (1 << std::clamp(lost_before, 0, 6)), kMaxLostPause);
  return most / 2 + part_of(most / 2, chance);
}

void C10dParticipant::join(Instant now) {
  deadline_ = now + settings_.run.join_timeout;
  join_again();
}

void C10dParticipant::join_again() {
  MUSTER_CHECK(deadline_.has_value());
  goal_ = Goal::Join;
  leave_first_ = true;
  was_spare_ = false;
}

void C10dParticipant::close(Instant now) {
  goal_ = Goal::Close;
  deadline_ = now + settings_.close_timeout;
}

void C10dParticipant::leave(Instant now) {
  goal_ = Goal::Leave;
  deadline_ = now + settings_.close_timeout;
}

C10dStep C10dParticipant::step(const RendezvousState& seen, Instant now, WallTime wall) {
  observe(seen, now, wall);
  RendezvousState state = without_dead(seen, now);
  update_lacking_since(state, now);
  update_progress(state);
  closed_while_member_ = goal_ == Goal::Stay && state.closed;
  switch (goal_) {
    case Goal::Nothing:
      return CheckLater{};
    case Goal::Join:
      return step_join(std::move(state), now, wall);
    case Goal::Stay:
      return step_stay(std::move(state), now, wall);
    case Goal::Close:
      return step_close(std::move(state), now);
    case Goal::Leave:
      return step_leave(std::move(state), now);
  }
  return CheckLater{};
}

void C10dParticipant::update_lacking_since(const RendezvousState& state, Instant now) {
  const bool enough = static_cast<int>(state.participants.size()) >= settings_.run.min_nodes;
  if (state.complete || enough)
    lacking_since_.reset();
  else if (!lacking_since_)
    lacking_since_ = now;
}

/// Whether this node must not join now because of --spare or --scale-policy. On the redundancy list
/// it makes no other node restart. A node that has been in a round joins the next one, and a node
/// that has left a complete round must make the others restart: they miss its workers.
bool C10dParticipant::holds_back(const RendezvousState& state, Instant now) const {
  const ScalePolicy policy = settings_.run.scale_policy;
  const bool first_round = state.round == 0 && !state.complete;
  const bool only_replaces = settings_.spare || (policy == ScalePolicy::Never && !first_round);
  if (only_replaces && !took_part_)
    return !lacking_since_ || now - *lacking_since_ < settings_.run.last_call_timeout;
  const bool is_missed = left_round_ == state.round;
  return state.complete && policy != ScalePolicy::Now && !is_missed;
}

void C10dParticipant::observe(const RendezvousState& seen, Instant now, WallTime wall) {
  std::erase_if(pulses_,
                [&](const auto& entry) { return !seen.last_heartbeats.contains(entry.first); });
  for (const auto& [node, at] : seen.last_heartbeats) {
    const auto [entry, is_new] = pulses_.try_emplace(node);
    Pulse& pulse = entry->second;
    const std::int64_t ahead_us = at.microseconds - wall.microseconds;
    if (is_new) {
      pulse = {.value = at, .since = now};
      // An old heartbeat does not show the skew of its node's clock. A heartbeat from the future
      // does, and it counts at once: this node's first heartbeat must not look old to that node.
      pulse.ahead_us = std::max<std::int64_t>(ahead_us, 0);
      pulse.confirmed = ahead_us > -microseconds(settings_.dead_after());
    } else if (pulse.value != at) {
      pulse.value = at;
      pulse.since = now;
      pulse.confirmed = true;
      pulse.ahead_us = ahead_us;
    }
  }
  if (!seen.deadline)
    last_call_.reset();
  else if (!last_call_ || last_call_->first != *seen.deadline)
    last_call_ = {*seen.deadline, now};
  if (seen.complete && round_of(seen)) last_ranks_ = seen.participants;
}

std::vector<std::pair<NodeName, std::int64_t>> C10dParticipant::take_skewed() {
  std::vector<std::pair<NodeName, std::int64_t>> skewed;
  for (auto& [node, pulse] : pulses_) {
    if (node == name_ || pulse.skew_reported || std::abs(pulse.ahead_us) <= kSkewThatMattersUs)
      continue;
    pulse.skew_reported = true;
    skewed.emplace_back(node, pulse.ahead_us);
  }
  return skewed;
}

// The time for this node's heartbeats: by the clock that is furthest ahead, if its skew matters.
// Otherwise this node would look dead to the owner of that clock.
WallTime C10dParticipant::stamp(WallTime wall) const {
  std::int64_t ahead_us = 0;
  for (const auto& [node, pulse] : pulses_)
    if (node != name_) ahead_us = std::max(ahead_us, pulse.ahead_us);
  return {wall.microseconds + (ahead_us > kSkewThatMattersUs ? ahead_us : 0)};
}

void C10dParticipant::update_progress(const RendezvousState& state) {
  const int joined = static_cast<int>(state.participants.size());
  const int min = settings_.run.min_nodes;
  const int max = settings_.run.max_nodes;
  progress_ = nodes_text(joined) + " of " + std::to_string(min);
  if (max != min) progress_ += " to " + std::to_string(max);
  progress_ += state.complete ? " in round " + std::to_string(state.round) : " joined";
  std::size_t shown = 0;
  for (const auto& [node, rank] : state.participants) {
    if (shown == kNamesShown) {
      progress_ += ", ...";
      break;
    }
    progress_ += (shown++ == 0 ? ": " : ", ") + to_string(node);
  }
  if (!state.complete && joined < min) progress_ += "; " + nodes_text(min - joined) + " missing";
  if (!state.wait_list.empty())
    progress_ += "; waiting for the next round: " + std::to_string(state.wait_list.size());
}

RendezvousState C10dParticipant::without_dead(const RendezvousState& seen, Instant now) const {
  RendezvousState state = seen;
  bool participant = false;
  for (const auto& [node, pulse] : pulses_) {
    if (node == name_ || now - pulse.since < settings_.dead_after()) continue;
    participant = remove_everywhere(state, node) || participant;
  }
  if (participant) participant_left(state);
  return state;
}

/// Whether a participant may be dead: its heartbeat was old when this node first saw it, and has
/// not changed since.
bool C10dParticipant::has_unconfirmed_participant(const RendezvousState& state) const {
  return std::any_of(state.participants.begin(), state.participants.end(), [&](const auto& entry) {
    const auto found = pulses_.find(entry.first);
    return entry.first != name_ && found != pulses_.end() && !found->second.confirmed;
  });
}

/// Returns whether the node was a participant.
bool C10dParticipant::remove_everywhere(RendezvousState& state, const NodeName& node) const {
  state.last_heartbeats.erase(node);
  state.wait_list.erase(node);
  state.redundancy_list.erase(node);
  return state.participants.erase(node);
}

void C10dParticipant::participant_left(RendezvousState& state) const {
  const bool too_few = static_cast<int>(state.participants.size()) < settings_.run.min_nodes;
  if (state.complete && state.participants.empty()) {
    state.complete = false;
    ++state.round;
  } else if (!state.complete && too_few) {
    state.deadline.reset();
  }
}

void C10dParticipant::complete(RendezvousState& state) const {
  std::vector<RankCandidate> candidates;
  const bool first_round = last_ranks_.empty();
  for (const auto& [node, unranked] : state.participants) {
    RankCandidate candidate{.name = node, .native = !first_round && node == name_};
    if (const auto* last = last_ranks_.find(node)) candidate.last_rank = static_cast<int>(*last);
    candidates.push_back(std::move(candidate));
  }
  const std::vector<std::size_t> order = assign_group_ranks(candidates);
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    state.participants.set(candidates[order[rank]].name, static_cast<std::int64_t>(rank));
  state.complete = true;
  state.deadline.reset();
  move_waiting_to_redundancy_list(state);
}

/// For a full round. Waiting nodes make running torchrun nodes restart, and would do so for ever if
/// no place is free: under torchrun a node on the wait list never moves to the redundancy list.
/// Returns whether any node waited.
bool C10dParticipant::move_waiting_to_redundancy_list(RendezvousState& state) const {
  const bool full = static_cast<int>(state.participants.size()) >= settings_.run.max_nodes;
  if (!state.complete || !full || state.wait_list.empty()) return false;
  for (const NodeName& node : state.wait_list)
    state.redundancy_list.insert(node);
  state.wait_list = {};
  return true;
}

/// The complete round; empty if members have begun to leave it, so that ranks are missing.
std::optional<RoundReady> C10dParticipant::round_of(const RendezvousState& state) const {
  RoundReady round{.round = state.round, .nodes = {}};
  round.nodes.resize(state.participants.size());
  std::vector<bool> taken(state.participants.size());
  for (const auto& [node, rank] : state.participants) {
    const auto place = static_cast<std::size_t>(rank);
    if (rank < 0 || place >= taken.size() || taken[place]) return std::nullopt;
    taken[place] = true;
    round.nodes[place] = node;
    if (node == name_) round.rank = static_cast<int>(rank);
  }
  return round;
}

C10dStep C10dParticipant::keep_alive_or_wait(RendezvousState state, Instant now,
                                             WallTime wall) const {
  const auto pulse = pulses_.find(name_);
  if (pulse == pulses_.end() || now - pulse->second.since < settings_.keep_alive_interval)
    return CheckLater{};
  state.last_heartbeats.set(name_, stamp(wall));
  return WriteState{std::move(state)};
}

C10dStep C10dParticipant::step_join(RendezvousState state, Instant now, WallTime wall) {
  if (state.closed) return RunIsClosed{state.redundancy_list.contains(name_) || was_spare_};
  if (auto step = step_leave_first(state, now)) return std::move(*step);
  if (auto step = step_spare(state, now, wall)) return std::move(*step);
  const bool participant = state.participants.contains(name_);
  if (state.complete && participant) {
    auto ready = round_of(state);
    if (!ready) {  // Others left before this node read the state: the world size is unknown.
      left_round_ = state.round;
      remove_everywhere(state, name_);
      participant_left(state);
      return WriteState{std::move(state)};
    }
    if (move_waiting_to_redundancy_list(state)) return WriteState{std::move(state)};
    goal_ = Goal::Stay;
    took_part_ = true;
    left_round_.reset();
    round_seen_by_all_ = false;
    ready_at_ = now;
    round_ = state.round;
    return std::move(*ready);
  }
  MUSTER_CHECK(deadline_.has_value());
  if (now > *deadline_) return step_too_late(std::move(state), now);
  return step_into_round(std::move(state), now, wall);
}

/// Leaves the round that is over. A member that has not read the state yet would count the world
/// without this node, so a node leaves a round that has just become complete a little later.
std::optional<C10dStep> C10dParticipant::step_leave_first(RendezvousState& state, Instant now) {
  if (!leave_first_) return std::nullopt;
  if (!state.participants.contains(name_)) {
    leave_first_ = false;
    return std::nullopt;
  }
  if (state.complete && !round_seen_by_all_ && now < ready_at_ + kAllHaveReadState)
    return CheckLater{};
  if (state.complete) left_round_ = state.round;
  state.participants.erase(name_);
  state.last_heartbeats.erase(name_);
  participant_left(state);
  return WriteState{std::move(state)};
}

std::optional<C10dStep> C10dParticipant::step_spare(RendezvousState& state, Instant now,
                                                    WallTime wall) {
  if (!state.redundancy_list.contains(name_)) return std::nullopt;
  was_spare_ = true;
  // A spare has no time limit. When a place becomes free, a new join timeout begins.
  deadline_ = now + settings_.run.join_timeout;
  const bool full = static_cast<int>(state.participants.size()) >= settings_.run.max_nodes;
  if (full || holds_back(state, now)) {
    if (move_waiting_to_redundancy_list(state)) return WriteState{std::move(state)};
    return keep_alive_or_wait(std::move(state), now, wall);
  }
  state.redundancy_list.erase(name_);
  state.last_heartbeats.erase(name_);
  return WriteState{std::move(state)};
}

C10dStep C10dParticipant::step_too_late(RendezvousState state, Instant now) {
  MUSTER_CHECK(deadline_.has_value());
  const bool in = state.participants.contains(name_) || state.wait_list.contains(name_);
  if (in && now <= *deadline_ + kRollback) {
    if (remove_everywhere(state, name_)) participant_left(state);
    return WriteState{std::move(state)};
  }
  return JoinTimedOut{"no round was complete within " + seconds_text(settings_.run.join_timeout) +
                      " (--rdzv-conf join_timeout); " + progress_};
}

C10dStep C10dParticipant::step_into_round(RendezvousState state, Instant now, WallTime wall) {
  const int max = settings_.run.max_nodes;
  const int count = static_cast<int>(state.participants.size());
  const bool waiting = state.wait_list.contains(name_);
  if (move_waiting_to_redundancy_list(state)) return WriteState{std::move(state)};
  if (holds_back(state, now) && !state.participants.contains(name_)) {
    state.wait_list.erase(name_);
    state.redundancy_list.insert(name_);
    state.last_heartbeats.set(name_, stamp(wall));
    return WriteState{std::move(state)};
  }
  if (state.complete) {
    if (waiting) return keep_alive_or_wait(std::move(state), now, wall);
    if (count < max)
      state.wait_list.insert(name_);
    else
      state.redundancy_list.insert(name_);
    state.last_heartbeats.set(name_, stamp(wall));
    return WriteState{std::move(state)};
  }
  if (state.participants.contains(name_)) {
    const bool enough = count >= settings_.run.min_nodes && count <= max;
    if (!enough || !last_call_over(state, now, wall) || has_unconfirmed_participant(state))
      return keep_alive_or_wait(std::move(state), now, wall);
    complete(state);
    return WriteState{std::move(state)};
  }
  // More participants than the maximum: other nodes have another --nnodes.
  if (count >= max || (count + 1 == max && has_unconfirmed_participant(state)))
    return keep_alive_or_wait(std::move(state), now, wall);
  was_spare_ = false;
  state.wait_list.erase(name_);
  state.participants.set(name_, 0);
  state.last_heartbeats.set(name_, stamp(wall));
  if (count + 1 == settings_.run.min_nodes)
    state.deadline =
        WallTime{stamp(wall).microseconds + microseconds(settings_.run.last_call_timeout)};
  if (count + 1 == max) complete(state);
  return WriteState{std::move(state)};
}

// The last call ends at the deadline. The deadline has the clock of the node that set it, and that
// clock may be wrong. So the last call also ends when its length has passed since this node saw the
// deadline.
bool C10dParticipant::last_call_over(const RendezvousState& state, Instant now,
                                     WallTime wall) const {
  if (!state.deadline || !last_call_) return false;
  return *state.deadline < wall || now - last_call_->second > settings_.run.last_call_timeout;
}

C10dStep C10dParticipant::step_stay(RendezvousState state, Instant now, WallTime wall) {
  const bool nobody = state.participants.empty() && state.wait_list.empty();
  if (!state.participants.contains(name_) || state.round != round_) {
    // The store has forgotten everything: as long as no node needs a round, the workers go on.
    if (nobody || state.closed) return CheckLater{};
    return RoundBroken{"the other nodes have not heard from this one and go on without it"};
  }
  if (move_waiting_to_redundancy_list(state)) return WriteState{std::move(state)};
  if (!state.wait_list.empty() && !state.closed) {
    const std::string first = to_string(*state.wait_list.begin());
    const std::size_t more = state.wait_list.size() - 1;
    return RoundBroken{first + (more > 0 ? " and " + std::to_string(more) + " more" : "") +
                       " will be in the next round"};
  }
  return keep_alive_or_wait(std::move(state), now, wall);
}

bool C10dParticipant::is_listed(const RendezvousState& state) const {
  return state.participants.contains(name_) || state.wait_list.contains(name_) ||
         state.redundancy_list.contains(name_);
}

C10dStep C10dParticipant::step_close(RendezvousState state, Instant now) {
  // If the state has other nodes but not this one, they have gone on without it, or another run has
  // begun in a store that was started again: this node must not close that run. An empty state is
  // closed, so that the nodes of this run see it.
  const bool has_others = !state.participants.empty() || !state.wait_list.empty();
  if (state.closed || (has_others && !is_listed(state))) return ParticipantDone{};
  MUSTER_CHECK(deadline_.has_value());
  if (now > *deadline_) return ParticipantDone{false};
  state.closed = true;
  return WriteState{std::move(state)};
}

C10dStep C10dParticipant::step_leave(RendezvousState state, Instant now) {
  if (!is_listed(state)) return ParticipantDone{};
  MUSTER_CHECK(deadline_.has_value());
  if (now > *deadline_) return ParticipantDone{false};
  if (remove_everywhere(state, name_)) participant_left(state);
  return WriteState{std::move(state)};
}

}  // namespace muster

#include "tests/support/torch_model.h"

#include <algorithm>

namespace muster::testing {
namespace {

std::int64_t microseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

void TorchModel::participant_left() {
  if (state.complete && state.participants.empty()) {
    state.complete = false;
    ++state.round;
  } else if (!state.complete && taken() < settings_.min_nodes) {
    state.deadline.reset();
  }
}

void TorchModel::sanitize(WallTime wall) {
  const std::int64_t expire = wall.microseconds - microseconds_of(settings_.dead_after);
  std::vector<NodeName> dead;
  for (const auto& [node, at] : state.last_heartbeats)
    if (at.microseconds < expire) dead.push_back(node);
  bool left = false;
  for (const NodeName& node : dead) {
    state.last_heartbeats.erase(node);
    left = state.participants.erase(node) || left;
    state.wait_list.erase(node);
    state.redundancy_list.erase(node);
  }
  if (left) participant_left();
}

bool TorchModel::keep_alive_due(WallTime wall) const {
  const WallTime* last = state.last_heartbeats.find(name_);
  return last != nullptr &&
         last->microseconds <= wall.microseconds - microseconds_of(settings_.keep_alive_interval);
}

TorchModel::Action TorchModel::decide(Operation operation, Instant now, Instant deadline,
                                      WallTime wall) const {
  switch (operation) {
    case Operation::Exit:
      if (!state.participants.contains(name_)) return Action::Finish;
      return now > deadline ? Action::TimedOut : Action::RemoveFromParticipants;
    case Operation::KeepAlive:
      if (!keep_alive_due(wall)) return Action::Finish;
      return now > deadline ? Action::TimedOut : Action::KeepAlive;
    case Operation::Close:
      if (state.closed) return Action::Finish;
      return now > deadline ? Action::TimedOut : Action::MarkClosed;
    case Operation::Join:
      break;
  }
  return decide_join(now, deadline, wall);
}

TorchModel::Action TorchModel::decide_join(Instant now, Instant deadline, WallTime wall) const {
  const bool redundant = state.redundancy_list.contains(name_);
  const bool waiting = state.wait_list.contains(name_);
  const bool participant = state.participants.contains(name_);
  const Action alive = keep_alive_due(wall) ? Action::KeepAlive : Action::Sync;
  if (state.closed) return redundant ? Action::Graceful : Action::Closed;
  if (redundant) return taken() == settings_.max_nodes ? alive : Action::RemoveFromRedundancyList;
  if (state.complete && participant) return Action::Finish;
  if (now > deadline) {
    if (now <= deadline + std::chrono::seconds(5)) {
      if (participant) return Action::RemoveFromParticipants;
      if (waiting) return Action::RemoveFromWaitList;
    }
    return Action::TimedOut;
  }
  if (state.complete) {
    if (taken() < settings_.max_nodes) {
      if (!waiting) return Action::AddToWaitList;
    } else if (!waiting) {
      return Action::AddToRedundancyList;
    }
    return alive;
  }
  if (!participant) return Action::AddToParticipants;
  const bool enough = taken() >= settings_.min_nodes && taken() <= settings_.max_nodes;
  if (enough && state.deadline && *state.deadline < wall) return Action::MarkComplete;
  return alive;
}

void TorchModel::apply(Action action, WallTime wall) {
  const auto mark_complete = [&] {
    state.complete = true;
    state.deadline.reset();
    std::vector<NodeName> sorted;
    for (const auto& [node, rank] : state.participants)
      sorted.push_back(node);
    std::sort(sorted.begin(), sorted.end());
    std::int64_t next = 0;
    for (const NodeName& node : sorted)
      state.participants.set(node, next++);
  };
  switch (action) {
    case Action::KeepAlive:
      state.last_heartbeats.set(name_, wall);
      break;
    case Action::AddToParticipants:
      state.wait_list.erase(name_);
      state.participants.set(name_, 0);
      state.last_heartbeats.set(name_, wall);
      if (taken() == settings_.min_nodes)
        state.deadline = WallTime{wall.microseconds + microseconds_of(settings_.last_call)};
      if (taken() == settings_.max_nodes) mark_complete();
      break;
    case Action::AddToWaitList:
      state.redundancy_list.erase(name_);
      state.wait_list.insert(name_);
      state.last_heartbeats.set(name_, wall);
      break;
    case Action::AddToRedundancyList:
      state.redundancy_list.insert(name_);
      state.last_heartbeats.set(name_, wall);
      break;
    case Action::RemoveFromParticipants:
      state.participants.erase(name_);
      state.last_heartbeats.erase(name_);
      participant_left();
      break;
    case Action::RemoveFromWaitList:
      state.wait_list.erase(name_);
      state.last_heartbeats.erase(name_);
      break;
    case Action::RemoveFromRedundancyList:
      state.redundancy_list.erase(name_);
      state.last_heartbeats.erase(name_);
      break;
    case Action::MarkComplete:
      mark_complete();
      break;
    case Action::MarkClosed:
      state.closed = true;
      break;
    case Action::Sync:
    case Action::Closed:
    case Action::Graceful:
    case Action::TimedOut:
    case Action::Finish:
      break;
  }
}

}  // namespace muster::testing

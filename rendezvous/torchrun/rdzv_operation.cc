#include "rendezvous/torchrun/rdzv_operation.h"

#include <map>

namespace muster {
namespace {

using Kind = StateOperation::Kind;
using Heartbeats = std::map<NodeName, WallTime>;

enum class ListPlace { None, Participant, Waiting, Redundant };

ListPlace place_in(const RendezvousState& state, const NodeName& node) {
  if (state.participants.contains(node)) return ListPlace::Participant;
  if (state.wait_list.contains(node)) return ListPlace::Waiting;
  return state.redundancy_list.contains(node) ? ListPlace::Redundant : ListPlace::None;
}

Heartbeats heartbeats_of(const RendezvousState& state) {
  return {state.last_heartbeats.begin(), state.last_heartbeats.end()};
}

Kind addition(ListPlace before, ListPlace after) {
  if (before == after) return Kind::KeepAlive;
  switch (after) {
    case ListPlace::Participant:
      return Kind::AddToParticipants;
    case ListPlace::Waiting:
      return Kind::AddToWaitList;
    case ListPlace::Redundant:
      return Kind::AddToRedundancyList;
    case ListPlace::None:
      break;
  }
  return Kind::KeepAlive;
}

std::optional<Kind> removal(ListPlace before) {
  switch (before) {
    case ListPlace::Participant:
      return Kind::RemoveFromParticipants;
    case ListPlace::Waiting:
      return Kind::RemoveFromWaitList;
    case ListPlace::Redundant:
      return Kind::RemoveFromRedundancyList;
    case ListPlace::None:
      break;
  }
  return std::nullopt;
}

template <typename Range>
std::vector<std::pair<NodeName, std::int64_t>> sorted_pairs(const Range& range) {
  std::vector<std::pair<NodeName, std::int64_t>> pairs;
  for (const auto& [name, value] : range) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, WallTime>)
      pairs.emplace_back(name, value.microseconds);
    else
      pairs.emplace_back(name, value);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

std::optional<StateOperation> derive_operation(const RendezvousState& seen,
                                               const RendezvousState& proposed,
                                               const std::optional<NodeName>& writer) {
  const Heartbeats before = heartbeats_of(seen);
  const Heartbeats after = heartbeats_of(proposed);
  StateOperation operation;
  for (const auto& [node, at] : after) {
    const auto known = before.find(node);
    if (known != before.end() && known->second == at) continue;
    if (operation.node) return std::nullopt;  // No torchrun node changes two heartbeats at once.
    operation.node = node;
    operation.heartbeat = at;
  }
  for (const auto& [node, at] : before)
    if (!after.contains(node)) operation.dropped.push_back(node);
  if (operation.node) {
    operation.kind = addition(place_in(seen, *operation.node), place_in(proposed, *operation.node));
    return operation;
  }
  if (proposed.closed && !seen.closed) {
    operation.kind = Kind::MarkClosed;
    return operation;
  }
  if (proposed.complete && !seen.complete) {
    operation.kind = Kind::MarkComplete;
    return operation;
  }
  if (operation.dropped.empty()) return std::nullopt;
  // One of the dropped nodes has left, the others were dropped as dead. The writer itself has left,
  // and it was alive: so it is the node with the newest heartbeat.
  auto& dropped = operation.dropped;
  auto left = std::max_element(dropped.begin(), dropped.end(), [&](const auto& a, const auto& b) {
    return before.at(a) < before.at(b);
  });
  if (writer)
    if (const auto found = std::find(dropped.begin(), dropped.end(), *writer);
        found != dropped.end())
      left = found;
  const auto kind = removal(place_in(seen, *left));
  if (!kind) return std::nullopt;
  operation.kind = *kind;
  operation.node = *left;
  dropped.erase(left);
  return operation;
}

bool same_content(const RendezvousState& a, const RendezvousState& b) {
  return a.round == b.round && a.complete == b.complete && a.deadline == b.deadline &&
         a.closed == b.closed && a.wait_list == b.wait_list &&
         a.redundancy_list == b.redundancy_list && a.foreign == b.foreign &&
         sorted_pairs(a.participants) == sorted_pairs(b.participants) &&
         sorted_pairs(a.last_heartbeats) == sorted_pairs(b.last_heartbeats);
}

}  // namespace muster

// A rendezvous state as JSON, in the form of tests/conformance/rendezvous/_twin.py.
#pragma once

#include <nlohmann/json.hpp>

#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster::testing {

inline nlohmann::json twin_of(const NodeName& name) {
  return {{"addr", name.addr}, {"pid", name.pid}, {"local_id", name.local_id}};
}

inline nlohmann::json twin_of(const NodeSet& nodes) {
  std::vector<NodeName> sorted(nodes.begin(), nodes.end());
  std::sort(sorted.begin(), sorted.end());
  auto list = nlohmann::json::array();
  for (const NodeName& name : sorted)
    list.push_back(twin_of(name));
  return list;
}

/// Leaves out the "iso" texts of the times, which are for people.
inline nlohmann::json twin_of(const RendezvousState& state) {
  auto participants = nlohmann::json::array();
  for (const auto& [name, rank] : state.participants)
    participants.push_back({{"node", twin_of(name)}, {"rank", rank}});
  auto heartbeats = nlohmann::json::array();
  for (const auto& [name, at] : state.last_heartbeats)
    heartbeats.push_back({{"node", twin_of(name)}, {"time", {{"epoch_us", at.microseconds}}}});
  nlohmann::json deadline;
  if (state.deadline) deadline = {{"epoch_us", state.deadline->microseconds}};
  return {{"round", state.round},
          {"complete", state.complete},
          {"deadline", deadline},
          {"closed", state.closed},
          {"participants", participants},
          {"wait_list", twin_of(state.wait_list)},
          {"redundancy_list", twin_of(state.redundancy_list)},
          {"last_heartbeats", heartbeats}};
}

inline NodeName node_of_twin(const nlohmann::json& twin) {
  return {twin.at("addr"), twin.at("pid"), twin.at("local_id")};
}

inline RendezvousState state_of_twin(const nlohmann::json& twin) {
  const auto time = [](const nlohmann::json& at) { return WallTime{at.at("epoch_us")}; };
  RendezvousState state{
      .round = twin.at("round"), .complete = twin.at("complete"), .closed = twin.at("closed")};
  if (!twin.at("deadline").is_null()) state.deadline = time(twin.at("deadline"));
  for (const auto& entry : twin.at("participants"))
    state.participants.add_new(node_of_twin(entry.at("node")), entry.at("rank"));
  for (const auto& node : twin.at("wait_list"))
    state.wait_list.add_new(node_of_twin(node));
  for (const auto& node : twin.at("redundancy_list"))
    state.redundancy_list.add_new(node_of_twin(node));
  for (const auto& entry : twin.at("last_heartbeats"))
    state.last_heartbeats.add_new(node_of_twin(entry.at("node")), time(entry.at("time")));
  return state;
}

}  // namespace muster::testing

// torchrun's rendezvous state as a value: the state that all torchrun nodes of a run read and
// rewrite.
//
// The data model is that of torch 2.13 (elastic/rendezvous/dynamic_rendezvous.py). Its encoding is
// in rendezvous/torchrun/state_codec.h, its rules are in rendezvous/host/rendezvous.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/node_name.h"

namespace muster {

/// Values by node, in the order of insertion; that order is part of the value.
template <typename Value>
class NodeMap {
 public:
  using Entry = std::pair<NodeName, Value>;

  /// If the node is already there, it keeps its position, as in a Python dict.
  void set(const NodeName& node, Value value) {
    if (Value* known = find(node))
      *known = value;
    else
      entries_.emplace_back(node, value);
  }
  /// Adds without a search: the caller knows that the node is not there yet.
  void add_new(NodeName node, Value value) { entries_.emplace_back(std::move(node), value); }
  bool erase(const NodeName& node) {
    return std::erase_if(entries_, [&](const Entry& entry) { return entry.first == node; }) > 0;
  }
  Value* find(const NodeName& node) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.first == node; });
    return found == entries_.end() ? nullptr : &found->second;
  }
  const Value* find(const NodeName& node) const { return const_cast<NodeMap*>(this)->find(node); }
  bool contains(const NodeName& node) const { return find(node) != nullptr; }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  bool operator==(const NodeMap&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// A set of nodes. It keeps the order of insertion for rendering only; comparisons ignore it.
class NodeSet {
 public:
  bool insert(const NodeName& node) {
    if (contains(node)) return false;
    nodes_.push_back(node);
    return true;
  }
  /// Adds without a search: the caller knows that the node is not there yet.
  void add_new(NodeName node) { nodes_.push_back(std::move(node)); }
  bool erase(const NodeName& node) { return std::erase(nodes_, node) > 0; }
  bool contains(const NodeName& node) const {
    return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end();
  }
  std::size_t size() const { return nodes_.size(); }
  bool empty() const { return nodes_.empty(); }
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }
  bool operator==(const NodeSet& other) const;

 private:
  std::vector<NodeName> nodes_;
};

/// An attribute of the state that torch 2.13 does not know, and that the host keeps: a name, and a
/// pickle of the value alone. Only the codec reads these bytes.
struct ForeignAttribute {
  std::string name;
  std::string pickled;
  bool operator==(const ForeignAttribute&) const = default;
};

struct RendezvousState {
  std::int64_t round = 0;
  bool complete = false;               // This round has its members.
  std::optional<WallTime> deadline;    // End of the last call; empty while below the minimum.
  bool closed = false;                 // No node may join any more.
  NodeMap<std::int64_t> participants;  // With their ranks: all 0 until the round is complete.
  NodeSet wait_list;                   // They want the next round: running torchrun nodes restart.
  NodeSet redundancy_list;             // They came when all places were taken.
  NodeMap<WallTime> last_heartbeats;   // Of every node in one of the three lists.
  std::vector<ForeignAttribute> foreign;
  bool operator==(const RendezvousState&) const = default;
};

}  // namespace muster

// torchrun's rendezvous state as a value: what all nodes of a run read and rewrite.
//
// The data model is that of torch 2.13 (elastic/rendezvous/dynamic_rendezvous.py); its bytes are
// rendezvous/wire/state_codec.h, its rules rendezvous/core/rendezvous.h.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

/// A wall clock's time, as torchrun writes it into the state: microseconds since 1970, UTC. Ours
/// are made by the shell. Nodes' wall clocks differ: nothing of ours is decided by comparing them.
struct WallTime {
  std::int64_t microseconds = 0;
  auto operator<=>(const WallTime&) const = default;
};

/// A node, as torchrun names it. `addr` is also where the node can be reached: that of rank 0
/// becomes MASTER_ADDR. Ordered as torchrun orders: by code point, then by number.
struct NodeName {
  std::string addr;
  std::int64_t pid = 0;
  std::int64_t local_id = 0;
  auto operator<=>(const NodeName&) const = default;
};

/// "addr_pid_localid", as torchrun prints it.
std::string to_string(const NodeName& name);

/// Values by node, in the order in which the nodes came; that order is part of the value.
template <typename Value>
class NodeMap {
 public:
  using Entry = std::pair<NodeName, Value>;

  /// The value stays where it is if the node is known already, as in a Python dict.
  void set(const NodeName& node, Value value) {
    if (Value* known = find(node))
      *known = value;
    else
      entries_.emplace_back(node, value);
  }
  /// Without a look for the same node: the caller knows that there is none.
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

/// A set of nodes. The order of coming is kept for rendering, and counts for nothing else.
class NodeSet {
 public:
  bool insert(const NodeName& node) {
    if (contains(node)) return false;
    nodes_.push_back(node);
    return true;
  }
  /// Without a look for the same node: the caller knows that there is none.
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

/// An attribute that torchrun does not know and keeps: a name, and a pickle of the value alone
/// (inert bytes to everybody but the codec).
struct ForeignAttribute {
  std::string name;
  std::string pickled;
  bool operator==(const ForeignAttribute&) const = default;
};

struct RendezvousState {
  std::int64_t round = 0;
  bool complete = false;               // This round has its members.
  std::optional<WallTime> deadline;    // End of the last call; nothing while below the minimum.
  bool closed = false;                 // Nobody may join any more.
  NodeMap<std::int64_t> participants;  // Their ranks: all 0 until the round is complete.
  NodeSet wait_list;                   // Want the next round: running torchrun nodes restart.
  NodeSet redundancy_list;             // All places are taken.
  NodeMap<WallTime> last_heartbeats;   // Of every node in one of the three.
  std::vector<ForeignAttribute> foreign;
  bool operator==(const RendezvousState&) const = default;
};

}  // namespace muster

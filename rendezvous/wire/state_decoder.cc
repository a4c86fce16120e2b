#include <array>
#include <set>

#include "rendezvous/wire/base64.h"
#include "rendezvous/wire/pickle_writer.h"
#include "rendezvous/wire/python_time.h"
#include "rendezvous/wire/state_codec.h"

namespace muster {
namespace {

using pickle::AllowedClass;
using pickle::Graph;
using pickle::Kind;
using pickle::Ref;
using pickle::Value;

class Decoder {
 public:
  explicit Decoder(const Graph& graph) : graph_(graph) {}

  StateResult<std::optional<RendezvousState>> decode(Ref root) {
    RendezvousState state;
    const Value* attributes = attributes_of(root, AllowedClass::State, "not a rendezvous state");
    if (attributes != nullptr) read(*attributes, state);
    if (error_) return *std::move(error_);
    return std::optional(std::move(state));
  }

 private:
  enum Known : std::size_t {
    Round,
    Complete,
    Deadline,
    Closed,
    Participants,
    WaitList,
    RedundancyList,
    LastHeartbeats,
    KnownCount
  };
  static constexpr std::array<std::string_view, KnownCount> kNames{
      "round",        "complete",  "deadline",        "closed",
      "participants", "wait_list", "redundancy_list", "last_heartbeats"};

  void fail(const Value& at, std::string reason) {
    if (!error_) error_ = StateError{StateError::Part::Pickle, at.offset, std::move(reason)};
  }
  const Value* attributes_of(Ref ref, AllowedClass of, const char* otherwise) {
    const Value& value = graph_.at(ref);
    if (value.kind == Kind::Instance && value.items.size() == 2 &&
        graph_.is_class(value.items[0], of))
      return &graph_.at(value.items[1]);
    fail(value, otherwise);
    return nullptr;
  }

  void read(const Value& attributes, RendezvousState& state) {
    std::array<const Ref*, KnownCount> known{};  // Null: it is not there.
    std::vector<std::pair<Ref, Ref>> foreign;
    for (std::size_t i = 0; i < attributes.items.size(); i += 2) {
      const Value& name = graph_.at(attributes.items[i]);
      if (name.kind != Kind::Text) return fail(name, "an attribute's name is no text");
      const auto found = std::find(kNames.begin(), kNames.end(), name.text);
      if (found == kNames.end())
        foreign.emplace_back(attributes.items[i], attributes.items[i + 1]);
      else
        known[static_cast<std::size_t>(found - kNames.begin())] = &attributes.items[i + 1];
    }
    for (std::size_t i = 0; i < KnownCount; ++i)
      if (known[i] == nullptr && i != RedundancyList)  // torch 2.2 and older had none.
        return fail(attributes, "the state has no " + std::string(kNames[i]));
    state.round = number(*known[Round], "round");
    if (state.round < 0) return fail(graph_.at(*known[Round]), "round is negative");
    state.complete = flag(*known[Complete], "complete");
    state.closed = flag(*known[Closed], "closed");
    if (!graph_.is(*known[Deadline], Kind::None)) state.deadline = time(*known[Deadline]);
    read_participants(*known[Participants], state);
    read_set(*known[WaitList], "wait_list", state.wait_list);
    if (known[RedundancyList] != nullptr)
      read_set(*known[RedundancyList], "redundancy_list", state.redundancy_list);
    read_heartbeats(*known[LastHeartbeats], state);
    read_foreign(foreign, state);
  }

  std::int64_t number(Ref ref, const char* what) {
    if (graph_.is(ref, Kind::Integer)) return graph_.at(ref).number;
    fail(graph_.at(ref), std::string(what) + " is no integer");
    return 0;
  }
  bool flag(Ref ref, const char* what) {
    if (graph_.is(ref, Kind::Bool)) return graph_.at(ref).number != 0;
    fail(graph_.at(ref), std::string(what) + " is no boolean");
    return false;
  }
  WallTime time(Ref ref) {
    const auto read = python_time(graph_, ref);
    if (read) return *read;
    fail(graph_.at(ref), read.error());
    return {};
  }
  NodeName node(Ref ref) {
    NodeName name;
    const Value* attributes = attributes_of(ref, AllowedClass::Node, "not a node");
    if (attributes == nullptr) return name;
    bool addr = false, pid = false, local_id = false;
    for (std::size_t i = 0; i < attributes->items.size(); i += 2) {
      const Value& key = graph_.at(attributes->items[i]);
      const Ref value = attributes->items[i + 1];
      if (key.kind != Kind::Text) {
        fail(key, "an attribute's name is no text");
      } else if (key.text == "addr") {
        addr = graph_.is(value, Kind::Text);
        name.addr = graph_.at(value).text.substr(0, kMaxAddressBytes + 1);
      } else if (key.text == "pid") {
        name.pid = number(value, "pid");
        pid = true;
      } else if (key.text == "local_id") {
        name.local_id = number(value, "local_id");
        local_id = true;
      }
    }
    if (!addr || !pid || !local_id) fail(graph_.at(ref), "a node lacks addr, pid or local_id");
    if (name.addr.size() > kMaxAddressBytes) fail(graph_.at(ref), "an address is too long");
    return name;
  }

  const Value* collection(Ref ref, Kind kind, const std::string& what) {
    const Value& value = graph_.at(ref);
    const char* wanted = kind == Kind::Dict ? " is no dict" : " is no set";
    if (value.kind != kind) {
      fail(value, what + wanted);
      return nullptr;
    }
    if (value.items.size() > kMaxStateNodes * (kind == Kind::Dict ? 2 : 1)) {
      fail(value, what + " has too many nodes");
      return nullptr;
    }
    return &value;
  }
  void read_participants(Ref ref, RendezvousState& state) {
    std::set<NodeName> seen;
    const Value* dict = collection(ref, Kind::Dict, "participants");
    for (std::size_t i = 0; dict != nullptr && !error_ && i < dict->items.size(); i += 2) {
      NodeName name = node(dict->items[i]);
      const std::int64_t rank = number(dict->items[i + 1], "a rank");
      if (seen.insert(name).second)
        state.participants.add_new(std::move(name), rank);
      else
        state.participants.set(name, rank);
    }
  }
  void read_heartbeats(Ref ref, RendezvousState& state) {
    std::set<NodeName> seen;
    const Value* dict = collection(ref, Kind::Dict, "last_heartbeats");
    for (std::size_t i = 0; dict != nullptr && !error_ && i < dict->items.size(); i += 2) {
      NodeName name = node(dict->items[i]);
      const WallTime at = time(dict->items[i + 1]);
      if (seen.insert(name).second)
        state.last_heartbeats.add_new(std::move(name), at);
      else
        state.last_heartbeats.set(name, at);
    }
  }
  void read_set(Ref ref, const char* what, NodeSet& nodes) {
    std::set<NodeName> seen;
    const Value* set = collection(ref, Kind::Set, what);
    for (std::size_t i = 0; set != nullptr && !error_ && i < set->items.size(); ++i) {
      NodeName name = node(set->items[i]);
      if (seen.insert(name).second) nodes.add_new(std::move(name));
    }
  }
  void read_foreign(const std::vector<std::pair<Ref, Ref>>& foreign, RendezvousState& state) {
    std::size_t bytes = 0;
    for (const auto& [name, value] : foreign) {
      auto pickled = pickle::write_pickle(graph_, value);
      if (!pickled) return fail(graph_.at(value), pickled.error().reason);
      bytes += graph_.at(name).text.size() + pickled->size();
      if (bytes > kMaxForeignBytes) return fail(graph_.at(value), "foreign attributes too long");
      std::erase_if(state.foreign,
                    [&](const auto& known) { return known.name == graph_.at(name).text; });
      state.foreign.push_back({std::string(graph_.at(name).text), *std::move(pickled)});
    }
  }

  const Graph& graph_;
  std::optional<StateError> error_;
};

}  // namespace

std::string describe(const StateError& error) {
  const bool text = error.part == StateError::Part::Text;
  return (text ? "character " : "byte ") + std::to_string(error.offset) +
         (text ? ": " : " of the pickle: ") + error.reason;
}

StateResult<std::optional<RendezvousState>> decode_state(std::string_view text,
                                                         const pickle::PickleLimits& limits) {
  if (text == kNoStateText) return std::optional<RendezvousState>();
  if (text.empty()) return StateError{StateError::Part::Text, 0, "empty"};
  if (text.size() / 4 * 3 > limits.bytes + 2)
    return StateError{StateError::Part::Text, limits.bytes, "longer than a state may be"};
  const auto bytes = base64_decode(text);
  if (!bytes) return StateError{StateError::Part::Text, bytes.error().offset, "not base64"};
  Graph graph;
  const auto root = pickle::read_pickle(*bytes, graph, limits);
  if (!root) return StateError{StateError::Part::Pickle, root.error().offset, root.error().reason};
  return Decoder(graph).decode(*root);
}

}  // namespace muster

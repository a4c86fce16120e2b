#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/base64.h"
#include "pickle/writer.h"
#include "rendezvous/torchrun/python_time.h"
#include "rendezvous/torchrun/state_codec.h"
#include "rendezvous/torchrun/state_rules.h"

namespace muster {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;

// Only letters, digits and underscores, and no name that Python itself looks up in an object, such
// as __reduce_ex__: that would break every node that writes the state again.
bool is_plain_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= kMaxForeignNameBytes && !name.starts_with("__") &&
         letter(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9');
         });
}

class Decoder {
 public:
  /// `pickle_bytes` bounds the memory of the addresses that are copied out of the graph.
  Decoder(const Graph& graph, std::size_t pickle_bytes)
      : graph_(graph), address_bytes_(kAddressBytesPerPickleByte * pickle_bytes) {}

  StateResult<std::optional<RendezvousState>> decode(Ref root) {
    RendezvousState state;
    const pickle::Value* attributes =
        attributes_of(root, StateClass::State, "not a rendezvous state");
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
  // The pickle has a node's address once, but the state has it once in each collection.
  static constexpr std::size_t kAddressBytesPerPickleByte = 4;
  static constexpr std::array<std::string_view, KnownCount> kNames{
      "round",        "complete",  "deadline",        "closed",
      "participants", "wait_list", "redundancy_list", "last_heartbeats"};

  void fail(const pickle::Value& at, std::string reason) {
    if (!error_) error_ = StateError{StateError::Part::Pickle, at.offset, std::move(reason)};
  }
  const pickle::Value* attributes_of(Ref ref, StateClass of, const char* otherwise) {
    const pickle::Value& value = graph_.at(ref);
    if (value.kind == Kind::Instance && value.items.size() == 2 &&
        is_class(graph_, value.items[0], of))
      return &graph_.at(value.items[1]);
    fail(value, otherwise);
    return nullptr;
  }

  void read(const pickle::Value& attributes, RendezvousState& state) {
    std::array<const Ref*, KnownCount> known{};  // Null: the attribute is missing.
    Foreign foreign;
    for (std::size_t i = 0; i < attributes.items.size(); i += 2) {
      const pickle::Value& name = graph_.at(attributes.items[i]);
      if (name.kind != Kind::Text) return fail(name, "an attribute's name is no text");
      const auto found = std::find(kNames.begin(), kNames.end(), name.text);
      if (found == kNames.end())
        record_foreign(attributes.items[i], attributes.items[i + 1], foreign);
      else
        known[static_cast<std::size_t>(found - kNames.begin())] = &attributes.items[i + 1];
    }
    if (error_) return;
    for (std::size_t i = 0; i < KnownCount; ++i)
      if (known[i] == nullptr && i != RedundancyList)  // Not in torch 2.2 and older.
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
  /// StateRules has checked that a node has its three attributes, and no others.
  NodeName node(Ref ref) {
    NodeName name;
    const pickle::Value* attributes = attributes_of(ref, StateClass::Node, "not a node");
    if (attributes == nullptr) return name;
    for (std::size_t i = 0; i < attributes->items.size(); i += 2) {
      const std::string_view key = graph_.at(attributes->items[i]).text;
      const pickle::Value& value = graph_.at(attributes->items[i + 1]);
      if (key == "addr")
        name.addr = address(value);
      else
        (key == "pid" ? name.pid : name.local_id) = value.number;
    }
    return name;
  }
  std::string_view address(const pickle::Value& text) {
    if (text.text.size() > kMaxStateAddressBytes) fail(text, "an address is too long");
    if (text.text.size() > address_bytes_) fail(text, "one address for too many nodes");
    if (error_) return {};
    address_bytes_ -= text.text.size();
    return text.text;
  }

  const pickle::Value* collection(Ref ref, Kind kind, const std::string& what) {
    const pickle::Value& value = graph_.at(ref);
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
    read_map(collection(ref, Kind::Dict, "participants"), state.participants,
             [&](Ref rank) { return number(rank, "a rank"); });
  }
  void read_heartbeats(Ref ref, RendezvousState& state) {
    read_map(collection(ref, Kind::Dict, "last_heartbeats"), state.last_heartbeats,
             [&](Ref at) { return time(at); });
  }
  /// As in a Python dict, a repeated key keeps its position and gets the new value.
  template <typename T, typename Read>
  void read_map(const pickle::Value* dict, NodeMap<T>& nodes, const Read& read) {
    std::map<NodeName, std::size_t> places;
    for (std::size_t i = 0; dict != nullptr && !error_ && i < dict->items.size(); i += 2) {
      NodeName name = node(dict->items[i]);
      const T value = read(dict->items[i + 1]);
      const auto [known, is_new] = places.try_emplace(name, nodes.size());
      if (is_new)
        nodes.add_new(std::move(name), value);
      else
        (nodes.begin() + static_cast<std::ptrdiff_t>(known->second))->second = value;
    }
  }
  void read_set(Ref ref, const char* what, NodeSet& nodes) {
    std::set<NodeName> seen;
    const pickle::Value* set = collection(ref, Kind::Set, what);
    for (std::size_t i = 0; set != nullptr && !error_ && i < set->items.size(); ++i) {
      NodeName name = node(set->items[i]);
      if (seen.insert(name).second) nodes.add_new(std::move(name));
    }
  }
  using Foreign = std::vector<std::pair<Ref, Ref>>;  // Name and value.

  void record_foreign(Ref name, Ref value, Foreign& foreign) {
    const std::string_view text = graph_.at(name).text;
    const auto known = std::find_if(foreign.begin(), foreign.end(), [&](const auto& attribute) {
      return graph_.at(attribute.first).text == text;
    });
    if (known != foreign.end()) return void(known->second = value);
    if (!is_plain_name(text)) return fail(graph_.at(name), "an attribute with a name of Python's");
    if (foreign.size() >= kMaxForeignAttributes)
      return fail(graph_.at(name),
                  "more than " + std::to_string(kMaxForeignAttributes) + " foreign attributes");
    foreign.emplace_back(name, value);
  }
  void read_foreign(const Foreign& foreign, RendezvousState& state) {
    std::size_t bytes = 0;
    std::size_t values = 0;
    for (const auto& [name, value] : foreign) {
      if (!count_plain(value, 0, values)) return;
      auto pickled = pickle::write_pickle(graph_, value);
      if (!pickled) return fail(graph_.at(value), pickled.error().reason);
      bytes += graph_.at(name).text.size() + pickled->size();
      if (bytes > kMaxForeignBytes) return fail(graph_.at(value), "foreign attributes too long");
      state.foreign.push_back({std::string(graph_.at(name).text), *std::move(pickled)});
    }
  }
  /// Whether the value consists of plain values, nodes and times. Counts a shared value each time.
  bool count_plain(Ref ref, int depth, std::size_t& values) {
    const pickle::Value& value = graph_.at(ref);
    if (depth > kMaxForeignDepth || ++values > kMaxForeignValues) {
      fail(value, "foreign attributes nested too deeply, or with too many values");
      return false;
    }
    switch (value.kind) {
      case Kind::None:
      case Kind::Bool:
      case Kind::Integer:
      case Kind::Text:
      case Kind::Bytes:
      case Kind::Call:  // StateRules allows only calls that make times.
        return true;
      case Kind::Tuple:
      case Kind::List:
      case Kind::Set:
      case Kind::Dict:
        return std::all_of(value.items.begin(), value.items.end(),
                           [&](Ref item) { return count_plain(item, depth + 1, values); });
      case Kind::Instance:
        return attributes_of(ref, StateClass::Node, "a foreign object") != nullptr;
      case Kind::Real:
      case Kind::Class:
      case Kind::Persistent:
      case Kind::Moved:
        break;
    }
    fail(value, "a foreign attribute that is no plain value");
    return false;
  }

  const Graph& graph_;
  std::size_t address_bytes_;  // The bytes that are left for further addresses.
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
  const auto root = pickle::read_pickle(*bytes, graph, StateRules(), limits);
  if (!root) return StateError{StateError::Part::Pickle, root.error().offset, root.error().reason};
  return Decoder(graph, bytes->size()).decode(*root);
}

}  // namespace muster

#include <array>
#include <map>

#include "base/base64.h"
#include "pickle/utf8.h"
#include "pickle/writer.h"
#include "rendezvous/torchrun/python_time.h"
#include "rendezvous/torchrun/state_codec.h"
#include "rendezvous/torchrun/state_rules.h"

namespace muster {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;

// A foreign attribute is inside the dict of the state.
constexpr int kStateDepth = 16;

// Builds the graph that torch has in memory after reading a state. Each name, each class, each node
// and UTC is one object, wherever it occurs. Every time is an object of its own.
class Builder {
 public:
  Graph take() { return std::move(graph_); }

  Ref state(const RendezvousState& state) {
    const Ref instance = object(StateClass::State);
    const Ref attributes = graph_.add({.kind = Kind::Dict});
    const auto put = [&](std::string_view name, Ref value) {
      const Ref key = name_text(name);
      graph_.at(attributes).items.insert(graph_.at(attributes).items.end(), {key, value});
    };
    put("round", integer(state.round));
    put("complete", boolean(state.complete));
    put("deadline", state.deadline ? time(*state.deadline) : graph_.add({}));
    put("closed", boolean(state.closed));
    put("participants", participants(state));
    put("wait_list", set(state.wait_list));
    put("redundancy_list", set(state.redundancy_list));
    put("last_heartbeats", heartbeats(state));
    for (const ForeignAttribute& attribute : state.foreign) {
      // The decoder has written this pickle. If it cannot be read, the state is written without the
      // attribute.
      const auto value =
          pickle::read_pickle(attribute.pickled, graph_, StateRules(), {.bytes_per_value = 1});
      if (value) put(attribute.name, *value);
    }
    graph_.at(instance).items.push_back(attributes);
    return instance;
  }

 private:
  Ref integer(std::int64_t value) { return graph_.add({.kind = Kind::Integer, .number = value}); }
  Ref boolean(bool value) { return graph_.add({.kind = Kind::Bool, .number = value}); }
  /// A name in the source of torch: one object, however often it is used.
  Ref name_text(std::string_view name) {
    const auto [known, is_new] = names_.try_emplace(name, 0);
    if (is_new) known->second = graph_.add({.kind = Kind::Text, .text = name});
    return known->second;
  }
  Ref class_ref(StateClass which) {
    auto& known = classes_[static_cast<std::size_t>(which)];
    if (known) return *known;
    const StateClassName name = name_of(which);
    const Ref module = name_text(name.module);
    // The class datetime has the same name as its module, but in Python its name is another object.
    const Ref own = which == StateClass::Time ? graph_.add({.kind = Kind::Text, .text = name.name})
                                              : name_text(name.name);
    known = graph_.add(
        {.kind = Kind::Class, .number = static_cast<std::int64_t>(which), .items = {module, own}});
    return *known;
  }
  Ref object(StateClass which) {
    const Ref of = class_ref(which);
    return graph_.add({.kind = Kind::Instance, .items = {of}});
  }
  Ref call(StateClass which, std::vector<Ref> arguments) {
    const Ref callee = class_ref(which);
    const Ref tuple = graph_.add({.kind = Kind::Tuple, .items = std::move(arguments)});
    return graph_.add({.kind = Kind::Call, .items = {callee, tuple}});
  }
  Ref utc() {
    if (utc_) return *utc_;
    const Ref offset = call(StateClass::Delta, {integer(0), integer(0), integer(0)});
    utc_ = call(StateClass::Zone, {offset});
    return *utc_;
  }
  Ref time(WallTime at) {
    const auto bytes = python_time_bytes(at);
    graph_.owned.emplace_back(bytes.data(), bytes.size());
    const Ref data = graph_.add({.kind = Kind::Bytes, .text = graph_.owned.back()});
    const Ref zone = utc();
    return call(StateClass::Time, {data, zone});
  }
  Ref address(std::string_view addr) {
    if (is_at_most_one_latin1(addr)) return name_text(addr);
    return graph_.add({.kind = Kind::Text, .text = addr});
  }
  Ref node(const NodeName& name) {
    const auto [known, is_new] = nodes_.try_emplace(name, 0);
    if (!is_new) return known->second;
    const Ref instance = object(StateClass::Node);
    const Ref attributes = graph_.add({.kind = Kind::Dict});
    std::vector<Ref> items{name_text("addr"), address(name.addr),    name_text("pid"),
                           integer(name.pid), name_text("local_id"), integer(name.local_id)};
    graph_.at(attributes).items = std::move(items);
    graph_.at(instance).items.push_back(attributes);
    known->second = instance;
    return instance;
  }
  Ref participants(const RendezvousState& state) {
    std::vector<Ref> items;
    for (const auto& [name, rank] : state.participants) {
      items.push_back(node(name));
      items.push_back(integer(rank));
    }
    return graph_.add({.kind = Kind::Dict, .items = std::move(items)});
  }
  Ref heartbeats(const RendezvousState& state) {
    std::vector<Ref> items;
    for (const auto& [name, at] : state.last_heartbeats) {
      items.push_back(node(name));
      items.push_back(time(at));
    }
    return graph_.add({.kind = Kind::Dict, .items = std::move(items)});
  }
  Ref set(const NodeSet& nodes) {
    std::vector<Ref> items;
    for (const NodeName& name : nodes)
      items.push_back(node(name));
    return graph_.add({.kind = Kind::Set, .items = std::move(items)});
  }

  Graph graph_;
  std::map<std::string_view, Ref> names_;
  std::map<NodeName, Ref> nodes_;
  std::array<std::optional<Ref>, 5> classes_;  // By StateClass.
  std::optional<Ref> utc_;
};

}  // namespace

std::string encode_state(const RendezvousState& state) {
  Builder builder;
  const Ref root = builder.state(state);
  const Graph graph = builder.take();
  auto bytes = pickle::write_pickle(graph, root, kStateDepth + pickle::kMaxPickleDepth);
  if (!bytes) {
    // Only foreign attributes can be nested too deeply, and the decoder refuses such ones. As a
    // fallback, the state is written without them.
    RendezvousState plain = state;
    plain.foreign.clear();
    Builder plain_builder;
    const Ref plain_root = plain_builder.state(plain);
    bytes = pickle::write_pickle(plain_builder.take(), plain_root, kStateDepth);
  }
  return base64_encode(bytes ? *bytes : std::string());
}

}  // namespace muster

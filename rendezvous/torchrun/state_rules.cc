#include "rendezvous/torchrun/state_rules.h"

#include <array>

#include "rendezvous/torchrun/python_time.h"

namespace muster {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;

constexpr std::string_view kTorchModule = "torch.distributed.elastic.rendezvous.dynamic_rendezvous";
constexpr std::array<StateClassName, 5> kNames{{{kTorchModule, "_RendezvousState"},
                                                {kTorchModule, "_NodeDesc"},
                                                {"datetime", "datetime"},
                                                {"datetime", "timezone"},
                                                {"datetime", "timedelta"}}};

/// A node must have addr, pid and local_id, each once: Python hashes and compares nodes with them.
std::string check_node(const Graph& graph, const pickle::Value& attributes) {
  const pickle::Value* addr = nullptr;
  const pickle::Value* pid = nullptr;
  const pickle::Value* local_id = nullptr;
  for (std::size_t i = 0; i < attributes.items.size(); i += 2) {
    const pickle::Value& key = graph.at(attributes.items[i]);
    const pickle::Value& value = graph.at(attributes.items[i + 1]);
    if (key.kind != Kind::Text) return "an attribute's name is no text";
    const pickle::Value** field = key.text == "addr"       ? &addr
                                  : key.text == "pid"      ? &pid
                                  : key.text == "local_id" ? &local_id
                                                           : nullptr;
    if (field == nullptr || *field != nullptr)
      return "a node has other attributes than addr, pid and local_id, or one twice";
    *field = &value;
  }
  if (addr == nullptr || pid == nullptr || local_id == nullptr || addr->kind != Kind::Text ||
      pid->kind != Kind::Integer || local_id->kind != Kind::Integer)
    return "a node lacks addr, pid or local_id";
  return {};
}

}  // namespace

StateClassName name_of(StateClass which) {
  return kNames[static_cast<std::size_t>(which)];
}

std::optional<std::int64_t> StateRules::find_name(std::string_view module,
                                                  std::string_view name) const {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i].module == module && kNames[i].name == name) return static_cast<std::int64_t>(i);
  return std::nullopt;
}

pickle::Rules::CallResult StateRules::check_call(const Graph& graph, Ref callee,
                                                 Ref arguments) const {
  if (is_class(graph, callee, StateClass::State) || is_class(graph, callee, StateClass::Node))
    return {"a call of a class that is made otherwise"};
  return {check_time_call(graph, callee, arguments)};
}

std::string StateRules::check_object(const Graph& graph, Ref of, Ref arguments) const {
  if (!is_class(graph, of, StateClass::State) && !is_class(graph, of, StateClass::Node))
    return "an object of something else than a state or a node";
  if (!graph.at(arguments).items.empty()) return "an object made with arguments";
  return {};
}

std::string StateRules::check_attributes(const Graph& graph, Ref object, Ref attributes) const {
  if (is_class(graph, graph.at(object).items[0], StateClass::State)) return {};
  return check_node(graph, graph.at(attributes));
}

std::string StateRules::check_key(const Graph& graph, Ref key) const {
  const pickle::Value& value = graph.at(key);
  const bool is_whole_node = value.kind == Kind::Instance && value.items.size() == 2 &&
                             is_class(graph, value.items[0], StateClass::Node);
  return is_whole_node ? std::string() : Rules::check_key(graph, key);
}

}  // namespace muster

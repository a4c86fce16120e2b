// Which names, calls and objects the pickle of a rendezvous state may contain.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pickle/reader.h"

namespace muster {

/// The names that a state may contain. The numbers are those of Rules::find_name().
enum class StateClass : std::int64_t {
  State,  // _RendezvousState
  Node,   // _NodeDesc
  Time,   // datetime.datetime
  Zone,   // datetime.timezone
  Delta,  // datetime.timedelta
};

/// As Python has it in memory: `module` and `name` of a class.
struct StateClassName {
  std::string_view module, name;
};
StateClassName name_of(StateClass which);

inline bool is_class(const pickle::Graph& graph, pickle::Ref ref, StateClass which) {
  return graph.is_class(ref, static_cast<std::int64_t>(which));
}

/// A node is complete when it gets its attributes, and a call has arguments with which Python
/// carries it out: so no value of an accepted pickle is broken, not even one that nobody refers to.
class StateRules final : public pickle::Rules {
 public:
  std::optional<std::int64_t> find_name(std::string_view module,
                                        std::string_view name) const override;
  CallResult check_call(const pickle::Graph& graph, pickle::Ref callee,
                        pickle::Ref arguments) const override;
  std::string check_object(const pickle::Graph& graph, pickle::Ref of,
                           pickle::Ref arguments) const override;
  std::string check_attributes(const pickle::Graph& graph, pickle::Ref object,
                               pickle::Ref attributes) const override;
  /// Also a node that has its attributes.
  std::string check_key(const pickle::Graph& graph, pickle::Ref key) const override;
};

}  // namespace muster

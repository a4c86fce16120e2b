// The names, calls and objects that the pickle of a rendezvous state may contain.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pickle/reader.h"

namespace muster {

/// The allowed names. The numbers are those of Rules::find_name().
enum class StateClass : std::int64_t {
  State,  // _RendezvousState
  Node,   // _NodeDesc
  Time,   // datetime.datetime
  Zone,   // datetime.timezone
  Delta,  // datetime.timedelta
};

/// The module and the name of a class in Python.
struct StateClassName {
  std::string_view module, name;
};
StateClassName name_of(StateClass which);

inline bool is_class(const pickle::Graph& graph, pickle::Ref ref, StateClass which) {
  return graph.is_class(ref, static_cast<std::int64_t>(which));
}

/// Checks that a node is complete when it gets its attributes, and that Python accepts the
/// arguments of each call. So every value of an accepted pickle is valid, even an unused one.
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
  /// Allows also a node that has its attributes.
  std::string check_key(const pickle::Graph& graph, pickle::Ref key) const override;
};

}  // namespace muster

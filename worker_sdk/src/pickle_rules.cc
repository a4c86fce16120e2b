#include "pickle_rules.h"

#include <algorithm>
#include <array>
#include <limits>

namespace muster {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;

struct Name {
  std::string_view module, name;
};
constexpr std::array<Name, 4> kNames{{{"torch._utils", "_rebuild_tensor_v2"},
                                      {"torch._utils", "_rebuild_parameter"},
                                      {"collections", "OrderedDict"},
                                      {"torch.storage", "_load_from_bytes"}}};

bool are_whole_numbers(const Graph& graph, Ref ref) {
  if (!graph.is(ref, Kind::Tuple)) return false;
  const auto& items = graph.at(ref).items;
  return std::all_of(items.begin(), items.end(),
                     [&graph](Ref item) { return graph.is(item, Kind::Integer); });
}

bool is_call_of(const Graph& graph, Ref ref, TorchName which) {
  return graph.is(ref, Kind::Call) && torch_name(graph, graph.at(ref).items[0]) == which;
}

/// Checks the arguments of
/// _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks, metadata=None)
std::string check_tensor(const Graph& graph, const std::vector<Ref>& arguments) {
  constexpr std::size_t kWithoutMetadata = 6;
  if (arguments.size() < kWithoutMetadata || arguments.size() > kWithoutMetadata + 1)
    return "a tensor of " + std::to_string(arguments.size()) + " arguments";
  if (!graph.is(arguments[0], Kind::Persistent)) return "a tensor without storage";
  if (!graph.is(arguments[1], Kind::Integer) || !are_whole_numbers(graph, arguments[2]) ||
      !are_whole_numbers(graph, arguments[3]))
    return "a tensor whose offset, sizes or strides are no whole numbers";
  if (arguments.size() == kWithoutMetadata || graph.is(arguments.back(), Kind::None)) return {};
  // The metadata is for a conjugation or negation, which is not applied to the stored elements yet.
  if (!graph.is(arguments.back(), Kind::Dict) || !graph.at(arguments.back()).items.empty())
    return "a tensor that is a conjugated or negated view: save its clone()";
  return {};
}

}  // namespace

TorchName torch_name(const Graph& graph, Ref of) {
  const std::int64_t number = graph.at(of).number;
  return number < 0 ? TorchName::Other : static_cast<TorchName>(number);
}

pickle::PickleLimits tensor_pickle_limits() {
  return {.bytes = std::numeric_limits<std::size_t>::max(),
          .values = std::numeric_limits<pickle::Ref>::max() - 1,
          .stack = std::numeric_limits<std::size_t>::max(),
          .bytes_per_value = 1,
          .tuple_depth = kMaxContainerDepth};
}

std::optional<std::int64_t> TensorRules::find_name(std::string_view module,
                                                   std::string_view name) const {
  std::size_t i = 0;
  while (i < kNames.size() && (kNames[i].module != module || kNames[i].name != name))
    ++i;
  return static_cast<std::int64_t>(i);
}

pickle::Rules::CallResult TensorRules::check_call(const Graph& graph, Ref callee,
                                                  Ref arguments) const {
  const auto& items = graph.at(arguments).items;
  switch (torch_name(graph, callee)) {
    case TorchName::RebuildTensor:
      return {check_tensor(graph, items)};
    case TorchName::RebuildParameter:
      if (items.size() == 3 && is_call_of(graph, items[0], TorchName::RebuildTensor)) return {};
      return {"a parameter of something else than a tensor"};
    case TorchName::OrderedDict:
      if (items.empty()) return {.made = Kind::Dict};
      break;
    case TorchName::LoadFromBytes:
      if (where_ == TensorBytes::Beside || items.size() != 1 || !graph.is(items[0], Kind::Bytes))
        return {"a file in a file"};
      if (!graph.at(items[0]).text.starts_with("PK"))
        return {"a tensor as Python's pickle writes it: send it with broadcast()"};
      return {};
    case TorchName::Other:
      break;
  }
  return {"a call of " + pickle::class_name(graph, callee) + ", which is not executed"};
}

std::string TensorRules::check_object(const Graph& graph, Ref of, Ref /*arguments*/) const {
  return "an object of the class " + pickle::class_name(graph, of);
}

std::string TensorRules::check_attributes(const Graph& graph, Ref object,
                                          Ref /*attributes*/) const {
  return "attributes of an object of the class " +
         pickle::class_name(graph, graph.at(object).items[0]);
}

std::string TensorRules::check_persistent(const Graph& graph, Ref id) const {
  constexpr std::size_t kParts = 5;
  if (where_ == TensorBytes::Inside) return "a tensor's storage, which is not in it";
  const auto& parts = graph.at(id).items;
  if (!graph.is(id, Kind::Tuple) || parts.size() != kParts ||
      graph.at(parts[0]).text != "storage" || !graph.is(parts[1], Kind::Class) ||
      !graph.is(parts[2], Kind::Text))
    return "a persistent id that is not a tensor's storage";
  return {};
}

std::string TensorRules::check_key(const Graph& graph, Ref key) const {
  if (is_call_of(graph, key, TorchName::RebuildTensor) ||
      is_call_of(graph, key, TorchName::RebuildParameter))
    return {};
  // The keys of LibTorch's dicts cannot be None or bytes.
  const Kind kind = graph.at(key).kind;
  const bool is_plain =
      kind == Kind::Bool || kind == Kind::Integer || kind == Kind::Real || kind == Kind::Text;
  return is_plain ? std::string() : "a key that is no text, number or tensor";
}

StorageId storage_id(const Graph& graph, Ref persistent) {
  const auto& parts = graph.at(graph.at(persistent).items[0]).items;
  return {.type = parts[1], .key = graph.at(parts[2]).text};
}

}  // namespace muster

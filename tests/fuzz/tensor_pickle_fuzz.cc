// libFuzzer: a pickle of tensors, as the SDK reads it from a checkpoint and from an object of
// another rank. An accepted pickle can be read without further checks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "pickle/reader.h"
#include "worker_sdk/src/pickle_rules.h"

namespace {

using namespace muster;

void check_call(const pickle::Graph& graph, const pickle::Value& call) {
  const auto& arguments = graph.at(call.items[1]).items;
  switch (torch_name(graph, call.items[0])) {
    case TorchName::RebuildTensor:
      if (storage_id(graph, arguments[0]).key.data() == nullptr) std::abort();
      if (!graph.is(arguments[1], pickle::Kind::Integer)) std::abort();
      for (const std::size_t shape : {2, 3})
        for (const pickle::Ref number : graph.at(arguments[shape]).items)
          if (!graph.is(number, pickle::Kind::Integer)) std::abort();
      return;
    case TorchName::RebuildParameter:
      if (!graph.is(arguments[0], pickle::Kind::Call)) std::abort();
      return;
    case TorchName::LoadFromBytes:
      if (!graph.is(arguments[0], pickle::Kind::Bytes)) std::abort();
      return;
    default:
      std::abort();  // No other call is accepted.
  }
}

void read(std::string_view bytes, TensorBytes where) {
  pickle::Graph graph;
  const auto root = pickle::read_pickle(bytes, graph, TensorRules(where), tensor_pickle_limits());
  if (graph.values.size() > bytes.size() + 16) std::abort();  // Each value takes at least one byte.
  if (!root) {
    if (root.error().reason.empty() || root.error().offset > bytes.size()) std::abort();
    return;
  }
  for (const pickle::Value& value : graph.values) {
    if (value.kind == pickle::Kind::Call) check_call(graph, value);
    if (value.kind == pickle::Kind::Instance) std::abort();
    if (value.kind == pickle::Kind::Dict && value.items.size() % 2 != 0) std::abort();
    for (const pickle::Ref item : value.items)
      if (item >= graph.values.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes, TensorBytes::Beside);
  read(bytes, TensorBytes::Inside);
  return 0;
}

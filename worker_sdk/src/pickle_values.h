// Makes LibTorch's values from a pickle. Private.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pickle/value.h"

#include "pickle_rules.h"

namespace muster {

/// Throws Error with the text "its pickle has …".
[[noreturn]] void fail_pickle(const std::string& what);

/// Makes each value once, also if the pickle refers to it several times: two references to one list
/// in the pickle become two references to one list.
class PickleValues {
 public:
  /// Makes the tensor of a call that TensorRules have accepted. `arguments` are those of the call.
  using MakeTensor =
      std::function<at::Tensor(TorchName callee, const std::vector<pickle::Ref>& arguments)>;

  /// TensorRules must have accepted `graph`.
  PickleValues(const pickle::Graph& graph, MakeTensor make_tensor);

  /// Throws Error for values that LibTorch does not have, for containers that contain themselves,
  /// and for containers that are nested more than kMaxContainerDepth deep.
  c10::IValue make(pickle::Ref root) { return visit(root).value; }

 private:
  struct Made {
    enum class Step : std::uint8_t { Not, UnderWay, Done };
    c10::IValue value;
    int height = 0;  // The depth of nested containers, including this one.
    Step step = Step::Not;
  };

  const Made& visit(pickle::Ref ref);
  c10::IValue make_value(pickle::Ref ref, int& height);
  c10::IValue make_container(const pickle::Value& from, int& height);
  c10::IValue make_dict(const pickle::Value& from, int& height);
  c10::IValue make_call(const pickle::Value& from);
  c10::IValue part(pickle::Ref ref, int& height);

  const pickle::Graph& graph_;
  MakeTensor make_tensor_;
  std::vector<Made> made_;  // By Ref.
  int depth_ = 0;
};

}  // namespace muster

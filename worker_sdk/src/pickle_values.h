// LibTorch's values for what a pickle says. Private.
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

/// "its pickle has …" as an Error.
[[noreturn]] void fail_pickle(const std::string& what);

/// Makes each value once, however often the pickle refers to it: two references to one list are
/// two references to one list again.
class PickleValues {
 public:
  /// Makes the tensor of a call that TensorRules accept. `arguments` are those of the call.
  using MakeTensor =
      std::function<at::Tensor(TorchName callee, const std::vector<pickle::Ref>& arguments)>;

  /// TensorRules have accepted what is in `graph`.
  PickleValues(const pickle::Graph& graph, MakeTensor make_tensor);

  /// Throws Error for values that LibTorch does not have, for containers inside of themselves, and
  /// for more than kMaxContainerDepth of them inside each other.
  c10::IValue make(pickle::Ref root) { return visit(root).value; }

 private:
  struct Made {
    enum class Step : std::uint8_t { Not, UnderWay, Done };
    c10::IValue value;
    int height = 0;  // How many containers are inside each other, counting this one.
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

#include <algorithm>
#include <functional>
#include <map>

#include "checkpoint_bytes.h"
#include "muster/checkpoint.h"

namespace muster {
namespace {

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

void add_own(Named& all, const torch::nn::Module& module, const std::string& prefix) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false))
    all.emplace_back(prefix + parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers(/*recurse=*/false))
    all.emplace_back(prefix + buffer.key(), buffer.value());
}

// Returns the tensors in Python's order: a module's parameters, its buffers, then its children. The
// module itself is handled separately, because named_modules() includes it only if a shared_ptr
// owns it.
Named named_state(const torch::nn::Module& module) {
  Named all;
  add_own(all, module, "");
  for (const auto& part : module.named_modules("", /*include_self=*/false))
    add_own(all, *part.value(), part.key() + ".");
  return all;
}

std::map<std::string, torch::Tensor> named_tensors(const c10::IValue& state) {
  std::map<std::string, torch::Tensor> given;
  for (const auto& entry : state.toGenericDict())
    if (entry.key().isString() && entry.value().isTensor())
      given.emplace(entry.key().toStringRef(), entry.value().toTensor());
  return given;
}

std::string shape_text(const torch::Tensor& tensor) {
  std::string text;
  for (const auto size : tensor.sizes())
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "a scalar" : text;
}

}  // namespace

c10::IValue entry_of(const c10::IValue& value, const std::string& key, const std::string& where) {
  if (!value.isGenericDict()) throw Error(where + ": expected a dict, found " + value.tagKind());
  const auto dict = value.toGenericDict();
  const auto found = dict.find(key);
  if (found == dict.end()) throw Error(where + ": no entry \"" + key + "\".");
  return found->value();
}

c10::IValue module_state(const torch::nn::Module& module) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : named_state(module))
    dict.insert(name, tensor.detach());
  return dict;
}

namespace {

void check_module_state(const torch::nn::Module& module, const c10::IValue& state) {
  if (!state.isGenericDict())
    throw Error("load_module_state: expected a dict of tensors, found " + state.tagKind() + ".");
  const std::map<std::string, torch::Tensor> given = named_tensors(state);
  const Named wanted = named_state(module);
  std::string problems;
  for (const auto& [name, tensor] : wanted) {
    const auto found = given.find(name);
    if (found == given.end())
      problems += " Missing: " + name + ".";
    else if (found->second.sizes() != tensor.sizes())
      problems += " " + name + " is " + shape_text(found->second) + " there and " +
                  shape_text(tensor) + " here.";
  }
  for (const auto& entry : given) {
    const auto is_name = [&entry](const auto& one) { return one.first == entry.first; };
    if (std::none_of(wanted.begin(), wanted.end(), is_name))
      problems += " Not in this model: " + entry.first + ".";
  }
  if (!problems.empty())
    throw Error("load_module_state: the state does not fit " + module.name() + ":" + problems);
}

}  // namespace

std::function<void()> prepare_module_state(torch::nn::Module& module, const c10::IValue& state,
                                           const LaterCopy& later) {
  check_module_state(module, state);
  const std::map<std::string, torch::Tensor> given = named_tensors(state);
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;  // Pairs of source and target.
  for (const auto& [name, tensor] : named_state(module)) {
    const torch::Tensor& from = given.at(name);
    if (from.is_meta())
      later(from, tensor);
    else
      copies.emplace_back(from, tensor);
  }
  return [copies = std::move(copies)] {
    const torch::NoGradGuard no_grad;
    for (const auto& [from, to] : copies)
      torch::Tensor(to).copy_(from);
  };
}

void load_module_state(torch::nn::Module& module, const c10::IValue& state) {
  prepare_module_state(module, state, [](const at::Tensor&, const at::Tensor&) {
    throw Error("load_module_state: a tensor on the device \"meta\", which has no elements.");
  })();
}

}  // namespace muster

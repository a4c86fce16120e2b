// The states of optimizers, in the form of Python's optimizer.state_dict() (2.13).
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "checkpoint_bytes.h"
#include "muster/checkpoint.h"

namespace muster {
namespace {

using Dict = c10::impl::GenericDict;

Dict make_dict() {
  return Dict(c10::StringType::get(), c10::AnyType::get());
}

constexpr const char* kGroups = "load_optimizer_state: param_groups";
constexpr const char* kState = "load_optimizer_state: state";

[[noreturn]] void fail_type(const std::string& where, const std::string& name,
                            const std::string& expected, const c10::IValue& found) {
  throw Error(where + ": " + name + ": expected " + expected + ", found " + found.tagKind() + ".");
}

double number(const c10::IValue& value, const std::string& where, const std::string& name) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() == 1)
    return value.toTensor().item<double>();
  if (!value.isInt() && !value.isDouble() && !value.isBool())
    fail_type(where, name, "a number", value);
  return value.toScalar().toDouble();
}

double option(const c10::IValue& group, const char* name) {
  return number(entry_of(group, name, kGroups), kGroups, name);
}

bool flag(const c10::IValue& group, const char* name) {
  const c10::IValue value = entry_of(group, name, kGroups);
  if (!value.isBool()) fail_type(kGroups, name, "True or False", value);
  return value.toBool();
}

// Returns a copy of `value` with the type and device of its parameter. If `value` has no elements
// yet, calls `later` for the copy.
torch::Tensor tensor_like(const c10::IValue& value, const std::string& name,
                          const torch::Tensor& parameter, const LaterCopy& later) {
  if (!value.isTensor() || !value.toTensor().defined()) fail_type(kState, name, "a tensor", value);
  if (value.toTensor().sizes() != parameter.sizes())
    throw Error(std::string(kState) + ": " + name + " is not of the shape of its parameter.");
  if (!value.toTensor().is_meta()) return value.toTensor().to(parameter.options()).clone();
  torch::Tensor copy = torch::empty(parameter.sizes(), parameter.options().requires_grad(false));
  later(value.toTensor(), copy);
  return copy;
}

c10::impl::GenericList list_of(const c10::IValue& value, const std::string& where,
                               const std::string& name) {
  if (!value.isList()) fail_type(where, name, "a list", value);
  return value.toList();
}

// Adds the options that only Python has, with the values for the behaviour of C++.
void add_python_only(Dict& group) {
  group.insert("maximize", false);
  group.insert("foreach", c10::IValue());
  group.insert("differentiable", false);
  group.insert("fused", c10::IValue());
}

// For Adam and AdamW, which have the same fields.
template <class Options, class ParamState>
struct AdamLike {
  static void write_options(const Options& options, Dict& group, bool decoupled) {
    group.insert("lr", options.lr());
    group.insert("betas", c10::ivalue::Tuple::create(
                              {std::get<0>(options.betas()), std::get<1>(options.betas())}));
    group.insert("eps", options.eps());
    group.insert("weight_decay", options.weight_decay());
    group.insert("amsgrad", options.amsgrad());
    group.insert("capturable", false);
    group.insert("decoupled_weight_decay", decoupled);
    add_python_only(group);
  }

  static void read_options(const c10::IValue& group, Options& options) {
    options.lr(option(group, "lr"));
    const auto betas = entry_of(group, "betas", kGroups);
    if (!betas.isTuple() || betas.toTupleRef().elements().size() != 2)
      fail_type(kGroups, "betas", "a tuple of two numbers", betas);
    const auto& pair = betas.toTupleRef().elements();
    options.betas({number(pair[0], kGroups, "betas"), number(pair[1], kGroups, "betas")});
    options.eps(option(group, "eps"));
    options.weight_decay(option(group, "weight_decay"));
    options.amsgrad(flag(group, "amsgrad"));
  }

  static void write_state(const ParamState& state, Dict& entries) {
    // In Python, the step is a float32 tensor.
    entries.insert("step", torch::tensor(static_cast<float>(state.step())));
    entries.insert("exp_avg", state.exp_avg());
    entries.insert("exp_avg_sq", state.exp_avg_sq());
    if (state.max_exp_avg_sq().defined()) entries.insert("max_exp_avg_sq", state.max_exp_avg_sq());
  }

  static std::unique_ptr<torch::optim::OptimizerParamState> read_state(
      const c10::IValue& entries, const torch::Tensor& parameter, const LaterCopy& later) {
    const auto like = [&](const char* name) {
      return tensor_like(entry_of(entries, name, kState), name, parameter, later);
    };
    auto state = std::make_unique<ParamState>();
    const double step = number(entry_of(entries, "step", kState), kState, "step");
    state->step(static_cast<std::int64_t>(step));
    state->exp_avg(like("exp_avg"));
    state->exp_avg_sq(like("exp_avg_sq"));
    if (entries.toGenericDict().contains("max_exp_avg_sq"))
      state->max_exp_avg_sq(like("max_exp_avg_sq"));
    return state;
  }
};

using AdamCodec = AdamLike<torch::optim::AdamOptions, torch::optim::AdamParamState>;
using AdamWCodec = AdamLike<torch::optim::AdamWOptions, torch::optim::AdamWParamState>;

struct SgdCodec {
  static void write_options(const torch::optim::SGDOptions& options, Dict& group) {
    group.insert("lr", options.lr());
    group.insert("momentum", options.momentum());
    group.insert("dampening", options.dampening());
    group.insert("weight_decay", options.weight_decay());
    group.insert("nesterov", options.nesterov());
    add_python_only(group);
  }

  static void read_options(const c10::IValue& group, torch::optim::SGDOptions& options) {
    options.lr(option(group, "lr"));
    options.momentum(option(group, "momentum"));
    options.dampening(option(group, "dampening"));
    options.weight_decay(option(group, "weight_decay"));
    options.nesterov(flag(group, "nesterov"));
  }
};

void write_group_options(const torch::optim::OptimizerOptions& options, Dict& group) {
  // AdamWOptions does not derive from AdamOptions, so the order of these checks does not matter.
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options))
    return AdamCodec::write_options(*adam, group, false);
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options))
    return AdamWCodec::write_options(*adamw, group, true);
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options))
    return SgdCodec::write_options(*sgd, group);
  throw Error("optimizer_state: only Adam, AdamW and SGD can be saved.");
}

void read_group_options(const c10::IValue& group, torch::optim::OptimizerOptions& options) {
  if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options))
    return AdamCodec::read_options(group, *adam);
  if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options))
    return AdamWCodec::read_options(group, *adamw);
  if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options))
    return SgdCodec::read_options(group, *sgd);
  throw Error("load_optimizer_state: only Adam, AdamW and SGD can be loaded.");
}

void write_param_state(const torch::optim::OptimizerParamState& state, Dict& entries) {
  if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(&state))
    return AdamCodec::write_state(*adam, entries);
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(&state))
    return AdamWCodec::write_state(*adamw, entries);
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state))
    if (sgd->momentum_buffer().defined()) entries.insert("momentum_buffer", sgd->momentum_buffer());
}

std::unique_ptr<torch::optim::OptimizerParamState> read_param_state(
    const c10::IValue& entries, const torch::optim::OptimizerOptions& options,
    const torch::Tensor& parameter, const LaterCopy& later) {
  if (dynamic_cast<const torch::optim::AdamOptions*>(&options) != nullptr)
    return AdamCodec::read_state(entries, parameter, later);
  if (dynamic_cast<const torch::optim::AdamWOptions*>(&options) != nullptr)
    return AdamWCodec::read_state(entries, parameter, later);
  auto state = std::make_unique<torch::optim::SGDParamState>();
  if (!entries.isGenericDict()) fail_type(kState, "a parameter's", "a dict", entries);
  const auto dict = entries.toGenericDict();
  const auto buffer = dict.find("momentum_buffer");
  if (buffer != dict.end() && !buffer->value().isNone())
    state->momentum_buffer(tensor_like(buffer->value(), "momentum_buffer", parameter, later));
  return state;
}

}  // namespace

c10::IValue optimizer_state(const torch::optim::Optimizer& optimizer) {
  Dict states(c10::IntType::get(), c10::AnyType::get());
  c10::impl::GenericList groups(c10::AnyType::get());
  std::int64_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    Dict options = make_dict();
    write_group_options(group.options(), options);
    c10::impl::GenericList indices(c10::AnyType::get());
    for (const torch::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        Dict entries = make_dict();
        write_param_state(*found->second, entries);
        states.insert(index, entries);
      }
      indices.push_back(index++);
    }
    options.insert("params", indices);
    groups.push_back(options);
  }
  Dict whole = make_dict();
  whole.insert("state", states);
  whole.insert("param_groups", groups);
  return whole;
}

std::function<void()> prepare_optimizer_state(torch::optim::Optimizer& optimizer,
                                              const c10::IValue& state, const LaterCopy& later) {
  const std::string where = "load_optimizer_state";
  const c10::IValue given = entry_of(state, "state", where);
  if (!given.isGenericDict()) fail_type(where, "state", "a dict", given);
  const auto states = given.toGenericDict();
  const auto groups = list_of(entry_of(state, "param_groups", where), where, "param_groups");
  auto& own = optimizer.param_groups();
  if (groups.size() != own.size())
    throw Error(where + ": " + std::to_string(groups.size()) + " parameter groups there, " +
                std::to_string(own.size()) + " here.");
  struct Read {
    std::vector<std::pair<torch::Tensor, std::unique_ptr<torch::optim::OptimizerParamState>>>
        states;
    std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  };
  const auto read = std::make_shared<Read>();
  for (std::size_t g = 0; g < own.size(); ++g) {
    const auto indices = list_of(entry_of(groups.get(g), "params", where), where, "params");
    if (indices.size() != own[g].params().size())
      throw Error(where + ": group " + std::to_string(g) + " has " +
                  std::to_string(indices.size()) + " parameters there and " +
                  std::to_string(own[g].params().size()) + " here.");
    for (std::size_t p = 0; p < indices.size(); ++p) {
      const c10::IValue& index = indices.get(p);
      if (!index.isInt()) fail_type(where, "params", "whole numbers", index);
      const torch::Tensor& parameter = own[g].params()[p];
      const auto found = states.find(index);
      if (found == states.end()) continue;
      read->states.emplace_back(
          parameter, read_param_state(found->value(), own[g].options(), parameter, later));
    }
    read->options.push_back(own[g].options().clone());
    read_group_options(groups.get(g), *read->options.back());
  }
  return [&optimizer, read] {
    auto& current = optimizer.param_groups();
    for (std::size_t g = 0; g < current.size(); ++g)
      current[g].set_options(std::move(read->options[g]));
    optimizer.state().clear();
    for (auto& [parameter, one] : read->states)
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(one);
  };
}

void load_optimizer_state(torch::optim::Optimizer& optimizer, const c10::IValue& state) {
  prepare_optimizer_state(optimizer, state, [](const at::Tensor&, const at::Tensor&) {
    throw Error("load_optimizer_state: a tensor on the device \"meta\", which has no elements.");
  })();
}

}  // namespace muster

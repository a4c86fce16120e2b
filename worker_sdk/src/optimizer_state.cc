// Optimizers' states in the shape that Python's optimizer.state_dict() has (2.13).
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

double number(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().item<double>() : value.toScalar().toDouble();
}

double option(const c10::IValue& group, const char* name) {
  return number(entry_of(group, name, "load_optimizer_state: param_groups"));
}

bool flag(const c10::IValue& group, const char* name) {
  return entry_of(group, name, "load_optimizer_state: param_groups").toBool();
}

// Options that Python has and C++ has not, at what C++ does.
void add_python_only(Dict& group) {
  group.insert("maximize", false);
  group.insert("foreach", c10::IValue());
  group.insert("differentiable", false);
  group.insert("fused", c10::IValue());
}

// Adam and AdamW: the same fields.
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
    const auto betas = entry_of(group, "betas", "load_optimizer_state: param_groups");
    const auto& pair = betas.toTupleRef().elements();
    if (pair.size() != 2) throw Error("load_optimizer_state: betas: expected two numbers.");
    options.betas({number(pair[0]), number(pair[1])});
    options.eps(option(group, "eps"));
    options.weight_decay(option(group, "weight_decay"));
    options.amsgrad(flag(group, "amsgrad"));
  }

  static void write_state(const ParamState& state, Dict& entries) {
    // Python counts in a float32 tensor.
    entries.insert("step", torch::tensor(static_cast<float>(state.step())));
    entries.insert("exp_avg", state.exp_avg());
    entries.insert("exp_avg_sq", state.exp_avg_sq());
    if (state.max_exp_avg_sq().defined()) entries.insert("max_exp_avg_sq", state.max_exp_avg_sq());
  }

  static std::unique_ptr<torch::optim::OptimizerParamState> read_state(
      const c10::IValue& entries, const torch::Tensor& parameter) {
    const std::string where = "load_optimizer_state: state";
    const auto like = [&](const char* name) {
      return entry_of(entries, name, where).toTensor().to(parameter.options()).clone();
    };
    auto state = std::make_unique<ParamState>();
    state->step(static_cast<std::int64_t>(number(entry_of(entries, "step", where))));
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
  // AdamWOptions does not derive from AdamOptions: the order of these questions does not matter.
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
    const torch::Tensor& parameter) {
  if (dynamic_cast<const torch::optim::AdamOptions*>(&options) != nullptr)
    return AdamCodec::read_state(entries, parameter);
  if (dynamic_cast<const torch::optim::AdamWOptions*>(&options) != nullptr)
    return AdamWCodec::read_state(entries, parameter);
  auto state = std::make_unique<torch::optim::SGDParamState>();
  const auto dict = entries.toGenericDict();
  const auto buffer = dict.find("momentum_buffer");
  if (buffer != dict.end() && buffer->value().isTensor())
    state->momentum_buffer(buffer->value().toTensor().to(parameter.options()).clone());
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

void load_optimizer_state(torch::optim::Optimizer& optimizer, const c10::IValue& state) {
  const std::string where = "load_optimizer_state";
  const auto states = entry_of(state, "state", where).toGenericDict();
  const auto groups = entry_of(state, "param_groups", where).toList();
  auto& own = optimizer.param_groups();
  if (groups.size() != own.size())
    throw Error(where + ": " + std::to_string(groups.size()) + " parameter groups there, " +
                std::to_string(own.size()) + " here.");
  std::vector<std::pair<torch::Tensor, std::unique_ptr<torch::optim::OptimizerParamState>>> read;
  for (std::size_t g = 0; g < own.size(); ++g) {
    const auto indices = entry_of(groups.get(g), "params", where).toList();
    if (indices.size() != own[g].params().size())
      throw Error(where + ": group " + std::to_string(g) + " has " +
                  std::to_string(indices.size()) + " parameters there and " +
                  std::to_string(own[g].params().size()) + " here.");
    for (std::size_t p = 0; p < indices.size(); ++p) {
      const torch::Tensor& parameter = own[g].params()[p];
      const auto found = states.find(indices.get(p));
      if (found == states.end()) continue;
      read.emplace_back(parameter, read_param_state(found->value(), own[g].options(), parameter));
    }
  }
  // From here on nothing of the state itself can be wrong but an option.
  for (std::size_t g = 0; g < own.size(); ++g)
    read_group_options(groups.get(g), own[g].options());
  optimizer.state().clear();
  for (auto& [parameter, one] : read)
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(one);
}

}  // namespace muster

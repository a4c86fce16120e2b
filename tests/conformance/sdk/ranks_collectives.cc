#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/conformance/sdk/ranks.h"

#include "muster/collectives.h"

namespace muster::testing {
namespace {

torch::Tensor mine() {
  return torch::arange(6, torch::kFloat32).reshape({2, 3}) + 10.0 * (get_rank() + 1);
}

torch::Tensor numbers() {
  return torch::arange(4, torch::kInt64) + 3 * get_rank() + 1;
}

std::vector<torch::Tensor> one_for_each() {
  std::vector<torch::Tensor> all;
  for (int i = 0; i < get_world_size(); ++i)
    all.push_back(mine() * (i + 1));
  return all;
}

void run_reductions(Table& table) {
  const std::pair<const char*, ReduceOp> ops[] = {
      {"sum", ReduceOp::Sum},  {"product", ReduceOp::Product}, {"min", ReduceOp::Min},
      {"max", ReduceOp::Max},  {"band", ReduceOp::BAnd},       {"bor", ReduceOp::BOr},
      {"bxor", ReduceOp::BXor}};
  for (const auto& [name, op] : ops) {
    torch::Tensor tensor = numbers();
    all_reduce(tensor, op);
    table[std::string("all_reduce_") + name] = tensor;
  }
  torch::Tensor tensor = mine();
  reduce(tensor, 1);
  if (get_rank() == 1) table["reduce"] = tensor;
  tensor = torch::zeros_like(mine());
  reduce_scatter(tensor, one_for_each());
  table["reduce_scatter"] = tensor;
  tensor = mine();
  all_reduce_async(tensor).wait();
  table["all_reduce_async"] = tensor;
}

void run_copies(Table& table) {
  torch::Tensor tensor = mine();
  broadcast(tensor, 1);
  table["broadcast"] = tensor;
  table["all_gather"] = torch::stack(all_gather(mine()));
  torch::Tensor gathered = torch::zeros({std::int64_t{2} * get_world_size(), 3});
  all_gather_into_tensor(gathered, mine());
  table["all_gather_into_tensor"] = gathered;
  const auto at_1 = gather(mine(), 1);
  if (get_rank() == 1) table["gather"] = torch::stack(at_1);
  tensor = torch::zeros_like(mine());
  scatter(tensor, get_rank() == 1 ? one_for_each() : std::vector<torch::Tensor>{}, 1);
  table["scatter"] = tensor;
  std::vector<torch::Tensor> outputs;
  for (int i = 0; i < get_world_size(); ++i)
    outputs.push_back(torch::zeros_like(mine()));
  all_to_all(outputs, one_for_each());
  table["all_to_all"] = torch::stack(outputs);
  tensor = torch::zeros({get_world_size(), 2});
  all_to_all_single(tensor, torch::arange(2 * get_world_size(), torch::kFloat32).reshape({-1, 2}) +
                                100.0 * get_rank());
  table["all_to_all_single"] = tensor;
}

void run_point_to_point(Table& table) {
  const int last = get_world_size() - 1;
  torch::Tensor tensor = mine();
  if (get_rank() == 0) send(tensor, last, {}, 7);
  if (get_rank() == last) {
    tensor = torch::zeros_like(mine());
    const int source = recv(tensor, 0, {}, 7);
    table["recv"] = tensor;
    table["recv_source"] = torch::tensor(source);
  }
  if (get_rank() == last) send(tensor, 0);
  if (get_rank() == 0) {
    const int source = recv(tensor);
    table["recv_any"] = tensor;
    table["recv_any_source"] = torch::tensor(source);
  }
}

void run_subgroups(Table& table) {
  const ProcessGroup last = new_group({get_world_size() - 1});
  const ProcessGroup pair = new_group({1, 0});
  table["members"] = torch::tensor({last.rank(), last.size(), pair.rank(), pair.size()});
  if (!pair.is_member()) return;
  torch::Tensor tensor = mine();
  all_reduce(tensor, ReduceOp::Sum, pair);
  table["pair_all_reduce"] = tensor;
  tensor = mine();
  broadcast(tensor, 1, pair);
  table["pair_broadcast"] = tensor;
  barrier(pair);
}

// A value with each type that pickles of both languages have.
c10::IValue everything() {
  using c10::AnyType;
  using c10::impl::GenericDict;
  using c10::impl::GenericList;
  GenericList numbers(AnyType::get());
  for (const std::int64_t number : {std::int64_t{1}, std::int64_t{-2}, std::int64_t{1} << 40})
    numbers.push_back(number);
  GenericDict inner(c10::StringType::get(), AnyType::get());
  inner.insert("empty", GenericList(AnyType::get()));
  inner.insert("long", std::string(300, 'x'));
  GenericDict all(c10::StringType::get(), AnyType::get());
  all.insert("text", "Gr\u00fc\u00dfe");
  all.insert("numbers", numbers);
  all.insert("real", -0.5);
  all.insert("yes", true);
  all.insert("none", c10::IValue());
  const c10::IValue pair = c10::ivalue::Tuple::create({std::string("x"), false});
  all.insert("pair", c10::ivalue::Tuple::create({std::int64_t{70'000}, pair}));
  all.insert("inner", inner);
  return all;
}

// As describe() of twin.py.
std::string describe(const c10::IValue& value) {
  std::string text;
  if (value.isNone()) return "none";
  if (value.isBool()) return value.toBool() ? "yes" : "no";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return "real " + std::to_string(value.toDouble());
  if (value.isString()) return "'" + value.toStringRef() + "'";
  if (value.isList()) {
    for (const c10::IValue& part : value.toListRef())
      text += describe(part) + ",";
    return "[" + text + "]";
  }
  if (value.isTuple()) {
    for (const c10::IValue& part : value.toTupleRef().elements())
      text += describe(part) + ",";
    return "(" + text + ")";
  }
  for (const auto& entry : value.toGenericDict())
    text += describe(entry.key()) + ":" + describe(entry.value()) + ",";
  return "{" + text + "}";
}

// In the mixed jobs: from C++ to Python, and from Python to C++.
void run_objects(Table& table) {
  for (const int source : {0, get_world_size() - 1}) {
    const c10::IValue mine = get_rank() == source ? everything() : c10::IValue();
    const std::string text = describe(broadcast_object(mine, source));
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    table["object_" + std::to_string(source)] = torch::tensor(bytes);
  }
}

}  // namespace

Table run_collectives() {
  Table table;
  run_reductions(table);
  run_copies(table);
  run_point_to_point(table);
  run_subgroups(table);
  run_objects(table);
  // The source is the last rank: in one of the mixed jobs it is C++.
  const int last = get_world_size() - 1;
  const std::string bytes = broadcast_bytes(get_rank() == last ? "bytes\n" : "", last);
  table["bytes"] = torch::tensor(static_cast<std::int64_t>(bytes.size()));
  barrier();
  return table;
}

}  // namespace muster::testing

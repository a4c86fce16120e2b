// Collectives of complex tensors, and of conjugated and negated views.
#include "tests/conformance/sdk/ranks.h"

#include "muster/collectives.h"

namespace muster::testing {
namespace {

torch::Tensor complex_rows(int rank) {
  const torch::Tensor numbers = torch::arange(6, torch::kFloat32).reshape({2, 3});
  return torch::complex(numbers + 10.0 * (rank + 1), 1.0 - numbers - rank);
}

torch::Tensor my_rows() {
  return complex_rows(get_rank());
}

torch::Tensor real_rows() {
  return torch::arange(6, torch::kFloat32).reshape({2, 3}) + 10.0 * (get_rank() + 1);
}

std::vector<torch::Tensor> multiples() {
  std::vector<torch::Tensor> all;
  for (int i = 0; i < get_world_size(); ++i)
    all.push_back(my_rows() * (i + 1));
  return all;
}

void run_complex_reductions(Table& table) {
  const std::pair<const char*, torch::Tensor> tensors[] = {
      {"plain", my_rows()},
      {"double", my_rows().to(torch::kComplexDouble)},
      {"turned", my_rows().t()},
      {"scalar", my_rows()[1][1].clone()},
      {"empty", my_rows().slice(0, 0, 0)}};
  for (const auto& [name, tensor] : tensors) {
    all_reduce(tensor);
    table[std::string("all_reduce_") + name] = tensor.contiguous();
  }
  torch::Tensor tensor = my_rows();
  all_reduce(tensor, ReduceOp::Avg);
  table["average"] = tensor;
  tensor = my_rows();
  all_reduce_async(tensor).wait();
  table["all_reduce_async"] = tensor;
  const std::pair<const char*, ReduceOp> refused[] = {
      {"PRODUCT", ReduceOp::Product}, {"MIN", ReduceOp::Min}, {"MAX", ReduceOp::Max},
      {"BAND", ReduceOp::BAnd},       {"BOR", ReduceOp::BOr}, {"BXOR", ReduceOp::BXor}};
  for (const auto& [name, op] : refused) {
    const std::string text = error_of([op = op] { all_reduce(my_rows(), op); });
    if (text.find("complex tensors have only ReduceOp::Sum and ReduceOp::Avg") == text.npos)
      throw Error("all_reduce " + std::string(name) + ": " + text);
    table[std::string("refused_") + name] = torch::tensor(true);
  }
  tensor = my_rows();
  reduce(tensor, 1);
  if (get_rank() == 1) table["reduce"] = tensor;
  tensor = torch::zeros_like(my_rows());
  reduce_scatter(tensor, multiples());
  table["reduce_scatter"] = tensor;
}

void run_complex_copies(Table& table) {
  torch::Tensor tensor = my_rows();
  broadcast(tensor, 1);
  table["broadcast"] = tensor;
  table["all_gather"] = torch::stack(all_gather(my_rows()));
  table["all_gather_negated"] = torch::stack(all_gather(torch::_neg_view(my_rows())));
  table["all_gather_real_negated"] = torch::stack(all_gather(torch::_neg_view(real_rows())));
  tensor = torch::zeros({std::int64_t{2} * get_world_size(), 3}, torch::kComplexFloat);
  all_gather_into_tensor(tensor, my_rows());
  table["all_gather_into_tensor"] = tensor;
  tensor = torch::zeros_like(my_rows());
  scatter(tensor, get_rank() == 1 ? multiples() : std::vector<torch::Tensor>{}, 1);
  table["scatter"] = tensor;
  std::vector<torch::Tensor> outputs;
  for (int i = 0; i < get_world_size(); ++i)
    outputs.push_back(torch::zeros_like(my_rows()));
  all_to_all(outputs, multiples());
  table["all_to_all"] = torch::stack(outputs);
  tensor = torch::zeros({get_world_size(), 2}, torch::kComplexFloat);
  all_to_all_single(tensor, my_rows().reshape({3, 2}).slice(0, 0, get_world_size()));
  table["all_to_all_single"] = tensor;
}

void run_complex_messages(Table& table) {
  const int last = get_world_size() - 1;
  if (get_rank() == 0) {
    send(my_rows(), last);
    isend(my_rows(), last).wait();
  }
  if (get_rank() != last) return;
  torch::Tensor tensor = torch::zeros_like(my_rows());
  recv(tensor, 0);
  table["recv"] = tensor;
  torch::Tensor pairs = torch::zeros({2, 3, 2});
  recv(pairs);
  table["recv_pairs"] = pairs;
}

}  // namespace

Table run_complex() {
  Table table;
  run_complex_reductions(table);
  run_complex_copies(table);
  run_complex_messages(table);
  barrier();
  const std::string text = error_of([] { gather(my_rows(), 0); });
  if (text != "no error")
    table["gather_refused"] = torch::tensor(text.find("Invalid scalar type") != text.npos);
  return table;
}

// Two ranks.
Table run_views() {
  Table table;
  const int other = 1 - get_rank();
  const auto refuse = [&table](const std::string& name, const auto& call) {
    const std::string text = error_of(call);
    table["refused_" + name] = torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()));
  };
  torch::Tensor conjugated = my_rows().conj();
  torch::Tensor negated = torch::_neg_view(real_rows());
  refuse("all_reduce", [&] { all_reduce(conjugated); });
  refuse("all_reduce_real", [&] { all_reduce(negated); });
  refuse("reduce", [&] { reduce(negated, get_rank()); });
  refuse("broadcast", [&] { broadcast(conjugated, other); });
  refuse("all_gather_into_tensor", [&] { all_gather_into_tensor(negated, my_rows()); });
  refuse("scatter", [&] { scatter(negated, {}, other); });
  refuse("reduce_scatter", [&] { reduce_scatter(negated, {my_rows(), my_rows()}); });
  refuse("all_to_all", [&] { all_to_all({negated, negated}, {my_rows(), my_rows()}); });
  refuse("all_to_all_single", [&] { all_to_all_single(conjugated, my_rows()); });
  refuse("recv", [&] { recv(conjugated, other); });
  const torch::Tensor theirs = complex_rows(other).conj().resolve_conj();
  const auto gathered = all_gather(conjugated);
  table["all_gather"] = torch::tensor(gathered[static_cast<std::size_t>(other)].equal(theirs) &&
                                      !gathered[0].is_conj());
  torch::Tensor tensor = get_rank() == 0 ? conjugated : torch::zeros_like(my_rows());
  broadcast(tensor, 0);
  table["broadcast"] = torch::tensor(tensor.equal(complex_rows(0).conj()));
  tensor = torch::zeros_like(my_rows());
  if (get_rank() == 0) {
    send(conjugated, 1);
    recv(tensor, 1);
  } else {
    recv(tensor, 0);
    send(conjugated, 0);
  }
  table["recv"] = torch::tensor(tensor.equal(theirs));
  tensor = torch::zeros_like(my_rows());
  reduce_scatter(tensor, {conjugated, conjugated});
  table["reduce_scatter"] = torch::tensor(tensor.equal((my_rows() + complex_rows(other)).conj()));
  tensor = torch::zeros_like(my_rows());
  scatter(tensor,
          get_rank() == 0 ? std::vector{conjugated, conjugated} : std::vector<torch::Tensor>{}, 0);
  table["scatter"] = torch::tensor(tensor.equal(complex_rows(0).conj()));
  tensor = get_rank() == 0 ? conjugated.resolve_conj() : conjugated;
  reduce(tensor, 0);
  table["reduce"] =
      torch::tensor(get_rank() != 0 || tensor.equal((my_rows() + complex_rows(other)).conj()));
  barrier();
  return table;
}

}  // namespace muster::testing

// Tests that ranks_collectives.cc does not have: asynchronous calls, subgroups, averages, unusual
// tensors, and a lost peer.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn.h>

#include "tests/conformance/sdk/ranks.h"

#include "muster/checkpoint.h"
#include "muster/collectives.h"
#include "muster/distributed_data_parallel.h"

namespace muster::testing {
namespace {

torch::Tensor own_rows() {
  return torch::arange(6, torch::kFloat32).reshape({2, 3}) + 10.0 * (get_rank() + 1);
}

torch::Tensor text_tensor(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()));
}

void run_async(Table& table) {
  torch::Tensor tensor = own_rows();
  Work work = broadcast_async(tensor, 1);
  while (!work.is_completed())  // The test has a time limit.
    std::this_thread::yield();
  work.wait();
  table["broadcast_async"] = tensor;
  const int next = (get_rank() + 1) % get_world_size();
  const int before = (get_rank() + get_world_size() - 1) % get_world_size();
  torch::Tensor received = torch::zeros({2, 3});
  Work incoming = irecv(received, before, {}, 3);
  Work outgoing = isend(own_rows(), next, {}, 3);
  incoming.wait();
  outgoing.wait();
  if (!incoming.is_completed() || !outgoing.is_completed()) throw Error("done, but not completed");
  table["ring"] = received;
}

void run_average(Table& table) {
  torch::Tensor tensor = own_rows();
  all_reduce(tensor, ReduceOp::Avg);
  table["average"] = tensor;
}

// The members are not the first ranks, so that ranks in the job and in the group differ.
void run_subgroup(Table& table) {
  const ProcessGroup pair = new_group({1, 2});
  if (!pair.is_member()) return destroy_process_group(pair);
  torch::Tensor tensor = own_rows();
  reduce(tensor, 2, ReduceOp::Max, pair);
  if (get_rank() == 2) table["pair_reduce"] = tensor;
  const auto gathered = gather(own_rows(), 2, pair);
  if (get_rank() == 2) table["pair_gather"] = torch::stack(gathered);
  std::vector<torch::Tensor> parts;
  if (get_rank() == 1) parts = {own_rows(), own_rows() * 2};
  tensor = torch::zeros_like(own_rows());
  scatter(tensor, parts, 1, pair);
  table["pair_scatter"] = tensor;
  barrier(pair);
  destroy_process_group(pair);
  if (pair.rank() != -1) throw Error("a destroyed group has a rank");
}

void run_odd_tensors(Table& table) {
  torch::Tensor empty = torch::empty({0, 3});
  all_reduce(empty);
  broadcast(empty, 0);
  table["empty"] = empty;
  torch::Tensor turned = torch::cat({own_rows(), own_rows()}).t().slice(0, 0, 2);
  all_reduce(turned);
  table["turned"] = turned.contiguous();
  torch::Tensor scalar = torch::tensor(1.5 + get_rank());
  all_reduce(scalar);
  table["scalar"] = scalar;
}

// For C++ ranks only: Python's pickle of a tensor cannot be read.
void run_tensor_object(Table& table) {
  c10::IValue value;
  if (get_rank() == 0) {
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    dict.insert("weight", own_rows().t());
    dict.insert("empty", torch::empty({0, 3}, torch::kInt64));
    dict.insert("conjugate", torch::complex(own_rows(), own_rows() + 1).conj());
    dict.insert("negated", torch::_neg_view(own_rows()));
    dict.insert("name", "layer");
    value = dict;
  }
  const auto dict = broadcast_object(value, 0).toGenericDict();
  table["object_weight"] = dict.at("weight").toTensor().contiguous();
  table["object_empty"] = dict.at("empty").toTensor();
  table["object_conjugate"] = dict.at("conjugate").toTensor();
  table["object_negated"] = dict.at("negated").toTensor();
  table["object_name"] = text_tensor(dict.at("name").toStringRef());
}

// Ends without a message to the other ranks, when rank 0 is ready for that.
[[noreturn]] void disappear(const std::string& folder) {
  while (!std::filesystem::exists(folder + "/ready"))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::_Exit(0);
}

std::string lose_peer(const std::string& how) {
  const ProcessGroup all;
  torch::Tensor tensor = own_rows();
  if (how == "all_reduce") return error_of([&] { all_reduce(tensor); });
  if (how == "async") {
    Work work = all_reduce_async(tensor);
    return error_of([&work] { work.wait(); });
  }
  if (how == "recv") return error_of([&] { recv(tensor, 1); });
  if (how == "torch_group") {
    std::vector<torch::Tensor> tensors{tensor};
    return error_of([&] { all.torch_group()->allreduce(tensors)->wait(); });
  }
  if (how == "new_group")
    return error_of([] { new_group({0, 1}, {.timeout = std::chrono::seconds(2)}); });
  if (how == "barrier") return error_of([] { barrier(); });
  if (how == "all_gather") return error_of([&] { all_gather(tensor); });
  return error_of([&] { broadcast(tensor, 1); });
}

}  // namespace

Table run_extra() {
  Table table;
  run_async(table);
  run_average(table);
  run_subgroup(table);
  run_odd_tensors(table);
  run_tensor_object(table);
  barrier();
  return table;
}

Table run_wrong_calls() {
  Table table;
  const auto note = [&table](const char* name, const std::string& text) {
    table[name] = text_tensor(text);
  };
  torch::Tensor whole = torch::zeros({4, 4});
  note("not_contiguous", error_of([&] { send(whole.t().slice(0, 0, 2), 1 - get_rank()); }));
  torch::Tensor small = torch::zeros({3});
  note("output_size", error_of([&] { all_gather_into_tensor(small, torch::zeros({2})); }));
  note("too_few", error_of([&] { reduce_scatter(small, {torch::zeros({3})}); }));
  note("self_send", error_of([&] { send(small, get_rank()); }));
  note("self_recv", error_of([&] { irecv(small, get_rank()); }));
  c10::impl::GenericList self(c10::AnyType::get());
  self.push_back(self);
  note("object_of_itself",
       error_of([&] { broadcast_object(get_rank() == 0 ? c10::IValue(self) : c10::IValue(), 0); }));
  self.clear();
  const c10::IValue device{c10::Device(c10::kCPU)};
  note("object_of_no_kind",
       error_of([&] { broadcast_object(get_rank() == 0 ? device : c10::IValue(), 0); }));
  const c10::IValue meta{torch::empty({2}, torch::device(torch::kMeta))};
  note("object_without_elements",
       error_of([&] { broadcast_object(get_rank() == 0 ? meta : c10::IValue(), 0); }));
  const ProcessGroup pair = new_group({0, 1});
  barrier(pair);  // Otherwise the other rank may still be connecting.
  destroy_process_group(pair);
  note("destroyed", error_of([&] { barrier(pair); }));
  note("destroyed_twice", error_of([&] { destroy_process_group(pair); }));
  barrier();
  return table;
}

// First Python sends values that C++ does not read, then C++ tries values that it does not write.
Table run_foreign_objects() {
  Table table;
  for (const char* name : {"tensor", "inner_tensor", "array", "bytes", "bytearray", "set",
                           "frozenset", "object", "class", "dtype", "complex", "large"})
    table[name] = text_tensor(error_of([] { broadcast_object({}, 0); }));
  const c10::IValue device{c10::Device(c10::kCPU)};
  table["device"] = text_tensor(error_of([&] { broadcast_object(device, 1); }));
  table["after"] = text_tensor(broadcast_object({}, 0).toStringRef());
  return table;
}

// `variant` is "FOLDER,HOW". Rank 1 is gone or, with HOW=timeout, alive but silent.
Table run_lost_peer(const std::string& variant) {
  const std::size_t comma = variant.find(',');
  const std::string folder = variant.substr(0, comma);
  const std::string how = variant.substr(comma + 1);
  torch::nn::Linear net(3, 2);
  DistributedDataParallel ddp(net);  // Afterwards all ranks are connected.
  std::ofstream(folder + "/connected." + std::to_string(get_rank())) << "yes";
  Table table;
  std::string text;
  if (how == "backward") {
    torch::Tensor loss = ddp(torch::ones({4, 3})).sum();
    if (get_rank() == 1) disappear(folder);
    std::ofstream(folder + "/ready") << "yes";
    text = error_of([&loss] { loss.backward(); });
  } else if (how == "forward") {
    torch::nn::BatchNorm1d norm(3);
    DistributedDataParallel with_buffers(norm);
    if (get_rank() == 1) disappear(folder);
    std::ofstream(folder + "/ready") << "yes";
    text = error_of([&] { with_buffers(torch::ones({4, 3})); });
  } else if (how == "second_forward") {
    // After the first backward(), the ranks agree on the order of the buckets.
    ddp(torch::ones({4, 3})).sum().backward();
    if (get_rank() == 1) disappear(folder);
    std::ofstream(folder + "/ready") << "yes";
    text = error_of([&] { ddp(torch::ones({4, 3})); });
  } else if (how == "construct") {
    if (get_rank() == 1) disappear(folder);
    std::ofstream(folder + "/ready") << "yes";
    text = error_of([&net] { DistributedDataParallel second(net); });
  } else if (how == "save" || how == "load") {
    Checkpoints checkpoints({.folder = folder + "/snapshots"});
    checkpoints.save(*net, nullptr, 1);
    if (get_rank() == 1) disappear(folder);
    std::ofstream(folder + "/ready") << "yes";
    text = error_of([&] {
      if (how == "save") checkpoints.save(*net, nullptr, 2);
      if (how == "load") checkpoints.load(*net, nullptr);
    });
  } else if (how == "timeout") {
    if (get_rank() == 1) {
      // Rank 0 may have failed to connect.
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!std::filesystem::exists(folder + "/done") && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::_Exit(0);
    }
    text = lose_peer("all_reduce");
    std::ofstream(folder + "/done") << "yes";
  } else {
    if (get_rank() == 1) disappear(folder);
    std::ofstream(folder + "/ready") << "yes";
    text = lose_peer(how);
  }
  std::ofstream(folder + "/error") << text;
  std::_Exit(0);  // A destructor might wait for the lost rank.
}

// A second step after a step that did not use a parameter.
Table run_unused_error() {
  struct HalfImpl : torch::nn::Module {
    HalfImpl() : used(3, 3), left_out(3, 3) {
      register_module("used", used);
      register_module("left_out", left_out);
    }
    torch::Tensor forward(const torch::Tensor& input) { return used(input); }
    torch::nn::Linear used, left_out;
  };
  DistributedDataParallel<HalfImpl> ddp(std::make_shared<HalfImpl>());
  ddp(torch::ones({2, 3})).sum().backward();
  Table table;
  table["error"] = text_tensor(error_of([&ddp] { ddp(torch::ones({2, 3})); }));
  return table;
}

// Ranks 1 and 2 of three; rank 1 is the group's rank 0, which writes.
Table run_subgroup_checkpoint(const std::string& folder) {
  const ProcessGroup pair = new_group({1, 2});
  Table table;
  if (pair.is_member()) {
    torch::manual_seed(static_cast<std::uint64_t>(get_rank()));
    torch::nn::Linear net(2, 2);
    Checkpoints checkpoints({.folder = folder, .process_group = pair});
    checkpoints.save(*net, nullptr, 7);
    torch::manual_seed(99);
    torch::nn::Linear other(2, 2);
    const auto done = checkpoints.load(*other, nullptr);
    table["epoch"] = torch::tensor(done ? done->epoch : -1);
    table["weight"] = other->weight.detach();
    table["next"] = torch::rand({2});  // This rank's own generator is restored.
  }
  barrier();
  return table;
}

}  // namespace muster::testing

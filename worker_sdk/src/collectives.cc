#include "muster/collectives.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "named_errors.h"
#include "pickle_file.h"
#include "tensor_forms.h"
#include "torch_versions.h"

namespace muster {

struct Work::State {
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<torch::Tensor> tensors;  // Kept alive until the work is done.
  ProcessGroup group;
  const char* name = "";  // The name of the operation.
};

namespace {

c10d::ReduceOp to_torch(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::Avg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::Product:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::Min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::Max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::BAnd:
      return c10d::ReduceOp::BAND;
    case ReduceOp::BOr:
      return c10d::ReduceOp::BOR;
    case ReduceOp::BXor:
      return c10d::ReduceOp::BXOR;
  }
  throw Error("ReduceOp " + std::to_string(static_cast<int>(op)) + ": not one of the enumerators.");
}

using TorchWork = c10::intrusive_ptr<c10d::Work>;

std::string describe_operation(const char* name, const ProcessGroup& group) {
  const auto torch_group = group.torch_group();
  return operation_text(name, torch_group->getGroupName(), torch_group->getRank(),
                        torch_group->getSize());
}

// Returns `tensor` if an operation can write to it.
torch::Tensor result(const char* name, torch::Tensor tensor, const ProcessGroup& group) {
  check_writable(tensor, [&] { return describe_operation(name, group); });
  return tensor;
}

// Throws Error for complex numbers that `op` cannot combine. Gloo would find it only after it has
// begun the operation, and would report it again in the next one.
void check_complex(const char* name, const torch::Tensor& tensor, ReduceOp op,
                   const ProcessGroup& group) {
  if (tensor.is_complex() && op != ReduceOp::Sum && op != ReduceOp::Avg)
    throw Error(describe_operation(name, group) +
                ": complex tensors have only ReduceOp::Sum and ReduceOp::Avg.");
}

// Starts an operation. An exception of LibTorch becomes a c10::Error with the operation's name.
template <class Call>
TorchWork start(const char* name, const ProcessGroup& group, Call call) {
  const auto torch_group = group.torch_group();  // Throws Error if this process is not a member.
  return with_named_errors([&] { return describe_operation(name, group); },
                           [&] { return call(*torch_group); });
}

// `work` is null if the backend has already ordered the operation on the current stream.
void finish(const char* name, const ProcessGroup& group, const TorchWork& work) {
  if (!work) return;
  with_named_errors([&] { return describe_operation(name, group); }, [&] { return work->wait(); });
}

template <class Call>
void run(const char* name, const ProcessGroup& group, Call call) {
  finish(name, group, start(name, group, std::move(call)));
}

Work pending(const char* name, TorchWork work, torch::Tensor tensor, const ProcessGroup& group) {
  return Work(std::make_shared<Work::State>(Work::State{
      .work = std::move(work), .tensors = {std::move(tensor)}, .group = group, .name = name}));
}

TorchWork start_all_reduce(torch::Tensor tensor, ReduceOp op, const ProcessGroup& group,
                           bool is_async) {
  check_complex("all_reduce", tensor, op, group);
  std::vector<torch::Tensor> tensors{as_real(result("all_reduce", std::move(tensor), group))};
  c10d::AllreduceOptions options;
  options.reduceOp = to_torch(op);
  options.asyncOp = is_async;
  return start("all_reduce", group,
               [&](c10d::ProcessGroup& all) { return all.allreduce(tensors, options); });
}

TorchWork start_broadcast(torch::Tensor tensor, int src, const ProcessGroup& group, bool is_async) {
  c10d::BroadcastOptions options;
  options.rootRank = group.group_rank(src);
  const bool is_source = options.rootRank == group.rank();
  std::vector<torch::Tensor> tensors{
      as_real(is_source ? resolved(tensor) : result("broadcast", std::move(tensor), group))};
  options.asyncOp = is_async;
  return start("broadcast", group,
               [&](c10d::ProcessGroup& all) { return all.broadcast(tensors, options); });
}

// Returns the peer's rank in the group. Throws Error if the peer is this process itself, with a
// clearer text than Gloo's.
int peer_rank(const char* name, int peer, const ProcessGroup& group) {
  const int rank = group.group_rank(peer);
  if (rank == group.rank())
    throw Error(std::string(name) + ": rank " + std::to_string(peer) +
                " is this process itself: expected another member of the group.");
  return rank;
}

std::vector<torch::Tensor> like_for_each(const torch::Tensor& tensor, const ProcessGroup& group) {
  std::vector<torch::Tensor> all;
  all.reserve(static_cast<std::size_t>(group.size()));
  for (int i = 0; i < group.size(); ++i)
    all.push_back(torch::empty_like(tensor));
  return all;
}

// Returns the device whose tensors carry objects. With NCCL, only GPUs are possible.
torch::Device object_device(const ProcessGroup& group) {
  const bool has_cpu = has_backend(*group.torch_group(), torch::kCPU);
  return has_cpu ? torch::Device(torch::kCPU) : torch::Device(torch::kCUDA);
}

}  // namespace

void Work::wait() {
  finish(state_->name, state_->group, state_->work);
  state_->tensors.clear();
}

bool Work::is_completed() const {
  return !state_->work || state_->work->isCompleted();
}

int Work::source_rank() const {
  return state_->group.global_rank(state_->work->sourceRank());
}

void all_reduce(torch::Tensor tensor, ReduceOp op, const ProcessGroup& group) {
  finish("all_reduce", group, start_all_reduce(std::move(tensor), op, group, false));
}

Work all_reduce_async(torch::Tensor tensor, ReduceOp op, const ProcessGroup& group) {
  auto work = start_all_reduce(tensor, op, group, true);
  return pending("all_reduce", std::move(work), std::move(tensor), group);
}

void broadcast(torch::Tensor tensor, int src, const ProcessGroup& group) {
  finish("broadcast", group, start_broadcast(std::move(tensor), src, group, false));
}

Work broadcast_async(torch::Tensor tensor, int src, const ProcessGroup& group) {
  auto work = start_broadcast(tensor, src, group, true);
  return pending("broadcast", std::move(work), std::move(tensor), group);
}

void reduce(torch::Tensor tensor, int dst, ReduceOp op, const ProcessGroup& group) {
  check_complex("reduce", tensor, op, group);
  c10d::ReduceOptions options;
  options.reduceOp = to_torch(op);
  options.rootRank = group.group_rank(dst);
  const bool is_target = options.rootRank == group.rank();
  std::vector<torch::Tensor> tensors{is_target ? result("reduce", std::move(tensor), group)
                                               : resolved(tensor)};
  options.asyncOp = false;
  run("reduce", group, [&](c10d::ProcessGroup& all) { return all.reduce(tensors, options); });
}

std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor, const ProcessGroup& group) {
  std::vector<torch::Tensor> all_tensors = like_for_each(tensor, group);
  std::vector<std::vector<torch::Tensor>> outputs{as_real(all_tensors)};
  std::vector<torch::Tensor> inputs{as_real(resolved(tensor))};
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  run("all_gather", group,
      [&](c10d::ProcessGroup& all) { return all.allgather(outputs, inputs, options); });
  return all_tensors;
}

void all_gather_into_tensor(torch::Tensor output, const torch::Tensor& input,
                            const ProcessGroup& group) {
  output = as_real(result("all_gather_into_tensor", std::move(output), group));
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  run("all_gather_into_tensor", group, [&](c10d::ProcessGroup& all) {
    return all_gather_single(all, std::move(output), as_real(resolved(input)), options);
  });
}

std::vector<torch::Tensor> gather(const torch::Tensor& tensor, int dst, const ProcessGroup& group) {
  std::vector<std::vector<torch::Tensor>> outputs;
  // As in Python, gather, reduce and reduce_scatter leave complex numbers to the backend. Gloo has
  // reductions of them, and refuses gather.
  std::vector<torch::Tensor> inputs{resolved(tensor)};
  c10d::GatherOptions options;
  options.rootRank = group.group_rank(dst);
  options.asyncOp = false;
  if (options.rootRank == group.rank()) outputs.push_back(like_for_each(tensor, group));
  run("gather", group,
      [&](c10d::ProcessGroup& all) { return all.gather(outputs, inputs, options); });
  return outputs.empty() ? std::vector<torch::Tensor>{} : std::move(outputs.front());
}

void scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs, int src,
             const ProcessGroup& group) {
  std::vector<torch::Tensor> outputs{as_real(result("scatter", std::move(output), group))};
  std::vector<std::vector<torch::Tensor>> given;
  c10d::ScatterOptions options;
  options.rootRank = group.group_rank(src);
  options.asyncOp = false;
  if (options.rootRank == group.rank()) given.push_back(as_real(resolved(inputs)));
  run("scatter", group,
      [&](c10d::ProcessGroup& all) { return all.scatter(outputs, given, options); });
}

void reduce_scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs, ReduceOp op,
                    const ProcessGroup& group) {
  check_complex("reduce_scatter", output, op, group);
  std::vector<torch::Tensor> outputs{result("reduce_scatter", std::move(output), group)};
  std::vector<std::vector<torch::Tensor>> given{resolved(inputs)};
  c10d::ReduceScatterOptions options;
  options.reduceOp = to_torch(op);
  options.asyncOp = false;
  run("reduce_scatter", group,
      [&](c10d::ProcessGroup& all) { return all.reduce_scatter(outputs, given, options); });
}

void all_to_all(std::vector<torch::Tensor> outputs, const std::vector<torch::Tensor>& inputs,
                const ProcessGroup& group) {
  for (torch::Tensor& output : outputs)
    output = as_real(result("all_to_all", std::move(output), group));
  std::vector<torch::Tensor> given = as_real(resolved(inputs));
  c10d::AllToAllOptions options;
  options.asyncOp = false;
  run("all_to_all", group,
      [&](c10d::ProcessGroup& all) { return all.alltoall(outputs, given, options); });
}

void all_to_all_single(torch::Tensor output, const torch::Tensor& input,
                       const ProcessGroup& group) {
  output = as_real(result("all_to_all_single", std::move(output), group));
  c10d::AllToAllOptions options;
  options.asyncOp = false;
  run("all_to_all_single", group, [&](c10d::ProcessGroup& all) {
    return muster::all_to_all_single(all, std::move(output), as_real(resolved(input)), options);
  });
}

Work isend(const torch::Tensor& tensor, int dst, const ProcessGroup& group, int tag) {
  const int peer = peer_rank("send", dst, group);
  std::vector<torch::Tensor> tensors{as_real(resolved(tensor))};
  auto work =
      start("send", group, [&](c10d::ProcessGroup& all) { return all.send(tensors, peer, tag); });
  return pending("send", std::move(work), std::move(tensors.front()), group);
}

Work irecv(torch::Tensor tensor, int src, const ProcessGroup& group, int tag) {
  std::vector<torch::Tensor> tensors{as_real(result("recv", tensor, group))};
  const int peer = src == kAnySource ? kAnySource : peer_rank("recv", src, group);
  auto work = start("recv", group, [&](c10d::ProcessGroup& all) {
    return peer == kAnySource ? all.recvAnysource(tensors, tag) : all.recv(tensors, peer, tag);
  });
  return pending("recv", std::move(work), std::move(tensor), group);
}

void send(const torch::Tensor& tensor, int dst, const ProcessGroup& group, int tag) {
  isend(tensor, dst, group, tag).wait();
}

int recv(torch::Tensor tensor, int src, const ProcessGroup& group, int tag) {
  Work work = irecv(std::move(tensor), src, group, tag);
  work.wait();
  return src == kAnySource ? work.source_rank() : src;
}

void barrier(const ProcessGroup& group) {
  c10d::BarrierOptions options;
  options.asyncOp = false;
  options.device = group.torch_group()->getBoundDeviceId();
  if (!options.device) options.device = object_device(group);
  run("barrier", group, [&](c10d::ProcessGroup& all) { return all.barrier(options); });
}

std::string broadcast_bytes(const std::string& bytes, int src, const ProcessGroup& group) {
  // The wire form of Python's broadcast_object_list: the sizes, then all bytes.
  const torch::Device device = object_device(group);
  const bool is_source = group.group_rank(src) == group.rank();
  torch::Tensor size = torch::zeros({1}, torch::dtype(torch::kInt64));
  if (is_source) size[0] = static_cast<std::int64_t>(bytes.size());
  size = size.to(device);
  broadcast(size, src, group);
  const auto count = size.item<std::int64_t>();
  torch::Tensor content = torch::empty({count}, torch::dtype(torch::kUInt8));
  if (is_source) std::copy(bytes.begin(), bytes.end(), content.data_ptr<std::uint8_t>());
  content = content.to(device);
  broadcast(content, src, group);
  content = content.cpu();
  const auto* first = content.data_ptr<std::uint8_t>();
  return std::string(first, first + count);
}

c10::IValue broadcast_object(const c10::IValue& value, int src, const ProcessGroup& group) {
  const auto here = [&group] { return describe_operation("broadcast_object", group) + ": "; };
  std::string bytes;
  std::string failure;
  if (group.group_rank(src) == group.rank()) {
    try {
      bytes = write_pickle(value);
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    // The other members wait for a value.
    if (!failure.empty()) bytes = write_pickle(c10::IValue());
  }
  bytes = broadcast_bytes(bytes, src, group);
  if (!failure.empty()) throw Error(here() + failure);
  const auto fail = [&](const std::string& reason) {
    throw Error(here() + "what rank " + std::to_string(src) + " sent cannot be read: " + reason +
                ". Python may send None, bool, numbers of up to 64 bits, texts, and lists, tuples "
                "and dicts of these, as the one object of broadcast_object_list().");
  };
  try {
    return read_pickle(bytes);
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const Error& error) {
    fail(error.what());
  }
  return {};  // Not reached.
}

}  // namespace muster

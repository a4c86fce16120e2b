#include "muster/collectives.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/jit/serialization/pickle.h>

#include "pickle_file.h"
#include "torch_versions.h"

namespace muster {

struct Work::State {
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<torch::Tensor> tensors;  // Kept alive until the work is done.
  ProcessGroup group;
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

// Nothing comes back where the backend has ordered the operation on the current stream already.
void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  if (work) work->wait();
}

Work pending(c10::intrusive_ptr<c10d::Work> work, torch::Tensor tensor, const ProcessGroup& group) {
  return Work(std::make_shared<Work::State>(
      Work::State{.work = std::move(work), .tensors = {std::move(tensor)}, .group = group}));
}

c10::intrusive_ptr<c10d::Work> start_all_reduce(std::vector<torch::Tensor> tensors, ReduceOp op,
                                                const ProcessGroup& group, bool is_async) {
  c10d::AllreduceOptions options;
  options.reduceOp = to_torch(op);
  options.asyncOp = is_async;
  return group.torch_group()->allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> start_broadcast(std::vector<torch::Tensor> tensors, int src,
                                               const ProcessGroup& group, bool is_async) {
  c10d::BroadcastOptions options;
  options.rootRank = group.group_rank(src);
  options.asyncOp = is_async;
  return group.torch_group()->broadcast(tensors, options);
}

std::vector<torch::Tensor> like_for_each(const torch::Tensor& tensor, const ProcessGroup& group) {
  std::vector<torch::Tensor> all;
  for (int i = 0; i < group.size(); ++i)
    all.push_back(torch::empty_like(tensor));
  return all;
}

// Where objects travel: NCCL knows only GPUs.
torch::Device object_device(const ProcessGroup& group) {
  const bool has_cpu = has_backend(*group.torch_group(), torch::kCPU);
  return has_cpu ? torch::Device(torch::kCPU) : torch::Device(torch::kCUDA);
}

}  // namespace

void Work::wait() {
  finish(state_->work);
  state_->tensors.clear();
}

bool Work::is_completed() const {
  return !state_->work || state_->work->isCompleted();
}

int Work::source_rank() const {
  return state_->group.global_rank(state_->work->sourceRank());
}

void all_reduce(torch::Tensor tensor, ReduceOp op, const ProcessGroup& group) {
  finish(start_all_reduce({std::move(tensor)}, op, group, false));
}

Work all_reduce_async(torch::Tensor tensor, ReduceOp op, const ProcessGroup& group) {
  auto work = start_all_reduce({tensor}, op, group, true);
  return pending(std::move(work), std::move(tensor), group);
}

void broadcast(torch::Tensor tensor, int src, const ProcessGroup& group) {
  finish(start_broadcast({std::move(tensor)}, src, group, false));
}

Work broadcast_async(torch::Tensor tensor, int src, const ProcessGroup& group) {
  auto work = start_broadcast({tensor}, src, group, true);
  return pending(std::move(work), std::move(tensor), group);
}

void reduce(torch::Tensor tensor, int dst, ReduceOp op, const ProcessGroup& group) {
  std::vector<torch::Tensor> tensors{std::move(tensor)};
  c10d::ReduceOptions options;
  options.reduceOp = to_torch(op);
  options.rootRank = group.group_rank(dst);
  options.asyncOp = false;
  finish(group.torch_group()->reduce(tensors, options));
}

std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor, const ProcessGroup& group) {
  const auto torch_group = group.torch_group();
  std::vector<std::vector<torch::Tensor>> outputs{like_for_each(tensor, group)};
  std::vector<torch::Tensor> inputs{tensor};
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  finish(torch_group->allgather(outputs, inputs, options));
  return std::move(outputs.front());
}

void all_gather_into_tensor(torch::Tensor output, const torch::Tensor& input,
                            const ProcessGroup& group) {
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  finish(all_gather_single(*group.torch_group(), std::move(output), input, options));
}

std::vector<torch::Tensor> gather(const torch::Tensor& tensor, int dst, const ProcessGroup& group) {
  const auto torch_group = group.torch_group();
  std::vector<std::vector<torch::Tensor>> outputs;
  std::vector<torch::Tensor> inputs{tensor};
  c10d::GatherOptions options;
  options.rootRank = group.group_rank(dst);
  options.asyncOp = false;
  if (options.rootRank == group.rank()) outputs.push_back(like_for_each(tensor, group));
  finish(torch_group->gather(outputs, inputs, options));
  return outputs.empty() ? std::vector<torch::Tensor>{} : std::move(outputs.front());
}

void scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs, int src,
             const ProcessGroup& group) {
  const auto torch_group = group.torch_group();
  std::vector<torch::Tensor> outputs{std::move(output)};
  std::vector<std::vector<torch::Tensor>> given;
  c10d::ScatterOptions options;
  options.rootRank = group.group_rank(src);
  options.asyncOp = false;
  if (options.rootRank == group.rank()) given.push_back(inputs);
  finish(torch_group->scatter(outputs, given, options));
}

void reduce_scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs, ReduceOp op,
                    const ProcessGroup& group) {
  std::vector<torch::Tensor> outputs{std::move(output)};
  std::vector<std::vector<torch::Tensor>> given{inputs};
  c10d::ReduceScatterOptions options;
  options.reduceOp = to_torch(op);
  options.asyncOp = false;
  finish(group.torch_group()->reduce_scatter(outputs, given, options));
}

void all_to_all(std::vector<torch::Tensor> outputs, const std::vector<torch::Tensor>& inputs,
                const ProcessGroup& group) {
  std::vector<torch::Tensor> given = inputs;
  c10d::AllToAllOptions options;
  options.asyncOp = false;
  finish(group.torch_group()->alltoall(outputs, given, options));
}

void all_to_all_single(torch::Tensor output, const torch::Tensor& input,
                       const ProcessGroup& group) {
  c10d::AllToAllOptions options;
  options.asyncOp = false;
  finish(muster::all_to_all_single(*group.torch_group(), std::move(output), input, options));
}

Work isend(torch::Tensor tensor, int dst, const ProcessGroup& group, int tag) {
  std::vector<torch::Tensor> tensors{tensor};
  auto work = group.torch_group()->send(tensors, group.group_rank(dst), tag);
  return pending(std::move(work), std::move(tensor), group);
}

Work irecv(torch::Tensor tensor, int src, const ProcessGroup& group, int tag) {
  std::vector<torch::Tensor> tensors{tensor};
  const auto torch_group = group.torch_group();
  auto work = src == kAnySource ? torch_group->recvAnysource(tensors, tag)
                                : torch_group->recv(tensors, group.group_rank(src), tag);
  return pending(std::move(work), std::move(tensor), group);
}

void send(torch::Tensor tensor, int dst, const ProcessGroup& group, int tag) {
  isend(std::move(tensor), dst, group, tag).wait();
}

int recv(torch::Tensor tensor, int src, const ProcessGroup& group, int tag) {
  Work work = irecv(std::move(tensor), src, group, tag);
  work.wait();
  return src == kAnySource ? work.source_rank() : src;
}

void barrier(const ProcessGroup& group) {
  const auto torch_group = group.torch_group();
  c10d::BarrierOptions options;
  options.asyncOp = false;
  options.device = torch_group->getBoundDeviceId();
  if (!options.device) options.device = object_device(group);
  finish(torch_group->barrier(options));
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

namespace {

std::string unreadable(int src) {
  return "broadcast_object: what rank " + std::to_string(src) +
         " sent cannot be read here. From Python: None, bool, numbers, texts, and lists, tuples "
         "and "
         "dicts of them; no tensors or bytes: ";
}

}  // namespace

c10::IValue broadcast_object(const c10::IValue& value, int src, const ProcessGroup& group) {
  std::string bytes;
  if (group.group_rank(src) == group.rank()) {
    const std::vector<char> pickled = torch::jit::pickle(value);
    bytes.assign(pickled.begin(), pickled.end());
  }
  bytes = broadcast_bytes(bytes, src, group);
  // LibTorch's own form, for tensors, too, is of protocol 2; Python's default is a later one.
  const bool is_pythons = bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] > 2;
  try {
    return is_pythons ? read_pickle(bytes) : torch::jit::unpickle(bytes.data(), bytes.size());
  } catch (const c10::Error& error) {
    throw Error(unreadable(src) + error.what_without_backtrace());
  } catch (const Error& error) {
    throw Error(unreadable(src) + error.what());
  }
}

}  // namespace muster

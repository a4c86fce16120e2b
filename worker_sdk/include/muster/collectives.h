// Collective operations, as torch.distributed has them.
//
// All members of the group must call the same operation in the same order. Tensors are dense and
// contiguous unless said otherwise, of the same shape and dtype on all members, on the CPU (Gloo)
// or on this process's own GPU (NCCL; Gloo copies through the CPU). `src` and `dst` are ranks in
// the whole job, not in the group. Without "async" a call returns when the result may be used: on
// the CPU when it is there, on a GPU when it is in order on the current stream, as in Python.
// Throw Error if this process is no member of the group; what LibTorch and Gloo find (shapes, a
// timeout, a lost peer) is c10::Error, whose text names the operation, the group and the rank.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "muster/process_group.h"

namespace muster {

/// How members' values are combined. Avg: numbers with a fraction; NCCL, and Gloo as of torch 2.13.
/// B…: whole numbers, Gloo only.
enum class ReduceOp { Sum, Avg, Product, Min, Max, BAnd, BOr, BXor };

/// An operation under way. Its tensors must not be touched before wait(). Copies are the same one.
class Work {
 public:
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Until the result may be used, see above. Throws c10::Error if the operation failed.
  void wait();
  /// Whether wait() would return, or throw, at once. Does not wait, and is no substitute for
  /// wait(): only that says whether it failed, and orders a GPU's stream after it.
  bool is_completed() const;
  /// Who sent it, after recv from anyone: its rank in the whole job.
  int source_rank() const;

 private:
  std::shared_ptr<State> state_;
};

/// `tensor` becomes the combination of all members' tensors. (Python: all_reduce.)
void all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::Sum, const ProcessGroup& group = {});
Work all_reduce_async(torch::Tensor tensor, ReduceOp op = ReduceOp::Sum,
                      const ProcessGroup& group = {});

/// `tensor` becomes src's. (Python: broadcast.)
void broadcast(torch::Tensor tensor, int src, const ProcessGroup& group = {});
Work broadcast_async(torch::Tensor tensor, int src, const ProcessGroup& group = {});

/// dst's `tensor` becomes the combination; the others' may be overwritten. (Python: reduce.)
void reduce(torch::Tensor tensor, int dst, ReduceOp op = ReduceOp::Sum,
            const ProcessGroup& group = {});

/// All members' tensors, in the order of their ranks. (Python: all_gather, with its list made.)
std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor, const ProcessGroup& group = {});
/// The same, concatenated along the first dimension or stacked, as `output`'s shape says:
/// size() times as many elements. (Python: all_gather_into_tensor.)
void all_gather_into_tensor(torch::Tensor output, const torch::Tensor& input,
                            const ProcessGroup& group = {});

/// On dst: all members' tensors in the order of their ranks; elsewhere nothing.
/// (Python: gather, with its list made.)
std::vector<torch::Tensor> gather(const torch::Tensor& tensor, int dst,
                                  const ProcessGroup& group = {});

/// `output` becomes the tensor that src has for this member: `inputs` has one for each on src, and
/// is empty elsewhere. (Python: scatter.)
void scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs, int src,
             const ProcessGroup& group = {});

/// `output` becomes the combination of what all members have at this member's place in `inputs`,
/// which has one tensor for each member. (Python: reduce_scatter.)
void reduce_scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs,
                    ReduceOp op = ReduceOp::Sum, const ProcessGroup& group = {});

/// Sends inputs[i] to member i; outputs[i] becomes what came from member i. Shapes may differ from
/// pair to pair if both sides know them. (Python: all_to_all.)
void all_to_all(std::vector<torch::Tensor> outputs, const std::vector<torch::Tensor>& inputs,
                const ProcessGroup& group = {});
/// The same with equal pieces along the first dimension. (Python: all_to_all_single.)
void all_to_all_single(torch::Tensor output, const torch::Tensor& input,
                       const ProcessGroup& group = {});

/// Between two members, not one and itself (Error): called by these two only. `tag`s must match
/// (Gloo). (Python: send, recv, isend, irecv.) recv from kAnySource takes the first that comes,
/// Gloo only; returns who sent it.
inline constexpr int kAnySource = -1;
void send(torch::Tensor tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
int recv(torch::Tensor tensor, int src = kAnySource, const ProcessGroup& group = {}, int tag = 0);
Work isend(torch::Tensor tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
Work irecv(torch::Tensor tensor, int src = kAnySource, const ProcessGroup& group = {}, int tag = 0);

/// Returns when all members have called it. (Python: barrier.)
void barrier(const ProcessGroup& group = {});

/// src's value, on all members; `value` counts on src only. Numbers, texts, bool, None, dense
/// tensors (which arrive on the CPU), lists, tuples and dicts of them, up to 100 deep. A Python
/// member takes part with broadcast_object_list of one object; what comes FROM Python may have all
/// of these but tensors, and numbers of up to 64 bits. Throws Error, naming both ranks and the kind
/// of value, for anything else: on src for what cannot be sent (the others get None), and where it
/// cannot be read. The group stays as it is. Nothing that a pickle names is executed.
/// (Python: broadcast_object_list.)
c10::IValue broadcast_object(const c10::IValue& value, int src, const ProcessGroup& group = {});
/// The same for bytes of any kind, without pickle.
std::string broadcast_bytes(const std::string& bytes, int src, const ProcessGroup& group = {});

}  // namespace muster

// The collective operations of torch.distributed.
//
// All members of the group must call the same operations in the same order. If a comment does not
// say otherwise, tensors are dense and contiguous, with the same shape and dtype on all members.
// They are on the CPU (Gloo), or on this process's GPU (NCCL, or Gloo, which copies them through
// the CPU). `src` and `dst` are ranks in the whole job, not in the group.
//
// A function without "async" returns when the result may be used. On the CPU, the result is then
// complete. On a GPU, the operation is then in order on the current stream, as in Python.
//
// Complex tensors are sent as pairs of real numbers, as in Python. Reductions of them are Sum and
// Avg only: others throw Error. Gloo refuses gather() of complex tensors. A conjugated or negated
// view may be sent. As the tensor for a result, it is an Error.
//
// All functions throw Error if this process is not a member of the group. An error that LibTorch or
// Gloo finds (shapes, a timeout, a lost peer) is a c10::Error, whose text names the operation, the
// group and the rank.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "muster/process_group.h"

namespace muster {

/// How the members' values are combined. Avg is for floating-point numbers, with NCCL, and with
/// Gloo since torch 2.13. BAnd, BOr and BXor are for whole numbers, with Gloo only.
enum class ReduceOp { Sum, Avg, Product, Min, Max, BAnd, BOr, BXor };

/// A running operation. The program must not use its tensors before wait(). A copy of a Work is the
/// same operation.
class Work {
 public:
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Waits until the result may be used (see above). Throws c10::Error if the operation failed.
  void wait();
  /// Whether wait() would return or throw at once. Does not wait. It does not replace wait(): only
  /// wait() reports a failure, and orders the GPU's current stream after the operation.
  bool is_completed() const;
  /// The sender of a recv from kAnySource, as a rank in the whole job. Only after wait().
  int source_rank() const;

 private:
  std::shared_ptr<State> state_;
};

/// Sets `tensor` to the combination of all members' tensors. (Python: all_reduce.)
void all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::Sum, const ProcessGroup& group = {});
Work all_reduce_async(torch::Tensor tensor, ReduceOp op = ReduceOp::Sum,
                      const ProcessGroup& group = {});

/// Sets `tensor` to src's tensor. (Python: broadcast.)
void broadcast(torch::Tensor tensor, int src, const ProcessGroup& group = {});
Work broadcast_async(torch::Tensor tensor, int src, const ProcessGroup& group = {});

/// Sets dst's `tensor` to the combination of all members' tensors. The tensors of other members may
/// be overwritten. (Python: reduce.)
void reduce(torch::Tensor tensor, int dst, ReduceOp op = ReduceOp::Sum,
            const ProcessGroup& group = {});

/// Returns all members' tensors, in the order of their ranks. (Python: all_gather, which gets the
/// list as an argument.)
std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor, const ProcessGroup& group = {});
/// Like all_gather(), but into one tensor, concatenated along the first dimension or stacked,
/// depending on the shape of `output`. `output` has size() times the elements of `input`.
/// (Python: all_gather_into_tensor.)
void all_gather_into_tensor(torch::Tensor output, const torch::Tensor& input,
                            const ProcessGroup& group = {});

/// Returns, on dst, all members' tensors in the order of their ranks. Returns an empty vector on
/// the other members. (Python: gather, which gets the list as an argument.)
std::vector<torch::Tensor> gather(const torch::Tensor& tensor, int dst,
                                  const ProcessGroup& group = {});

/// Sets `output` to the tensor that src has for this member. On src, `inputs` has one tensor for
/// each member. On the other members, it is empty. (Python: scatter.)
void scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs, int src,
             const ProcessGroup& group = {});

/// `inputs` has one tensor for each member. Sets `output` to the combination of the tensors that
/// all members have for this member. (Python: reduce_scatter.)
void reduce_scatter(torch::Tensor output, const std::vector<torch::Tensor>& inputs,
                    ReduceOp op = ReduceOp::Sum, const ProcessGroup& group = {});

/// Sends inputs[i] to member i, and receives outputs[i] from member i. The shapes may differ
/// between pairs of members if both members of a pair use the same shape. (Python: all_to_all.)
void all_to_all(std::vector<torch::Tensor> outputs, const std::vector<torch::Tensor>& inputs,
                const ProcessGroup& group = {});
/// Like all_to_all(), with equal pieces of one tensor along its first dimension.
/// (Python: all_to_all_single.)
void all_to_all_single(torch::Tensor output, const torch::Tensor& input,
                       const ProcessGroup& group = {});

/// recv() and irecv() from kAnySource receive the first tensor from any member. Gloo only.
inline constexpr int kAnySource = -1;
/// Sends a tensor from one member to another. Only these two members call it. Throws Error if the
/// other member is this process itself. With Gloo, the tags must be equal. recv() returns the rank
/// of the sender. (Python: send, recv, isend, irecv.)
void send(const torch::Tensor& tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
int recv(torch::Tensor tensor, int src = kAnySource, const ProcessGroup& group = {}, int tag = 0);
Work isend(const torch::Tensor& tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
Work irecv(torch::Tensor tensor, int src = kAnySource, const ProcessGroup& group = {}, int tag = 0);

/// Returns when all members have called it. (Python: barrier.)
void barrier(const ProcessGroup& group = {});

/// Returns src's value on all members. `value` is used only on src.
///
/// The value may have numbers, texts, bool, None, dense tensors (which arrive on the CPU), and
/// lists, tuples and dicts of them, nested up to 100 deep. A Python member takes part with
/// broadcast_object_list of one object. A value FROM Python must not have tensors, or numbers of
/// more than 64 bits.
///
/// Throws Error for any other value, on src if the value cannot be sent (the other members then get
/// None), or on each member that cannot read it. The text names both ranks and the kind of value.
/// The group works afterwards. Nothing that a pickle names is executed.
/// (Python: broadcast_object_list.)
c10::IValue broadcast_object(const c10::IValue& value, int src, const ProcessGroup& group = {});
/// Returns src's bytes on all members, without pickle.
std::string broadcast_bytes(const std::string& bytes, int src, const ProcessGroup& group = {});

}  // namespace muster

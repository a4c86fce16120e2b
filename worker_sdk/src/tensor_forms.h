// The forms in which collectives.cc gives tensors to a backend. Private.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "muster/error.h"

namespace muster {

/// Returns complex numbers as pairs of real numbers: Gloo and NCCL have no complex numbers, and
/// torch.distributed sends pairs (torch/distributed/distributed_c10d.py, 2.13).
/// Sparse tensors stay as they are.
inline torch::Tensor as_real(const torch::Tensor& tensor) {
  const bool is_viewable = tensor.is_complex() && tensor.layout() == torch::kStrided;
  return is_viewable ? torch::view_as_real(tensor) : tensor;
}

inline std::vector<torch::Tensor> as_real(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> real;
  real.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors)
    real.push_back(as_real(tensor));
  return real;
}

/// For a tensor that is only read. A conjugated or negated view becomes a copy with its own values:
/// a backend reads the memory that is behind the view.
inline torch::Tensor resolved(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.resolve_conj().resolve_neg() : tensor;
}

inline std::vector<torch::Tensor> resolved(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> all;
  all.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors)
    all.push_back(resolved(tensor));
  return all;
}

/// For a tensor that gets a result. Throws Error for a conjugated or negated view: LibTorch would
/// write the result to a copy, without an error. `operation` gives the text for the error.
template <class Describe>
void check_writable(const torch::Tensor& tensor, Describe operation) {
  if (!tensor.defined() || (!tensor.is_conj() && !tensor.is_neg())) return;
  throw Error(operation() + ": the tensor for the result is a " +
              (tensor.is_conj() ? "conjugated" : "negated") +
              " view: expected an ordinary tensor, as resolve_conj() and resolve_neg() return it.");
}

}  // namespace muster

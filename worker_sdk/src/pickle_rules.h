// The names, calls and objects that a pickle of tensors and plain values may contain. Needs no
// LibTorch. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pickle/reader.h"

namespace muster {

/// The place of the tensors' bytes: in records of the archive beside the pickle (torch.save), or in
/// the pickle itself, as one whole archive for each tensor (broadcast_object).
enum class TensorBytes { Beside, Inside };

/// The names that a pickle may call. The numbers are those of Rules::find_name().
enum class TorchName : std::int64_t {
  RebuildTensor,     // torch._utils._rebuild_tensor_v2
  RebuildParameter,  // torch._utils._rebuild_parameter
  OrderedDict,       // collections.OrderedDict
  LoadFromBytes,     // torch.storage._load_from_bytes
  Other,             // Any other name. The rules refuse a call of it.
};

TorchName torch_name(const pickle::Graph& graph, pickle::Ref of);

/// The largest depth of nested containers in a file. States of models and optimizers have a much
/// smaller depth, and recursive functions can handle this depth.
inline constexpr int kMaxContainerDepth = 100;

/// A text in a pickle begins with its size, in so many bytes.
inline constexpr int kTextSizeBytes = 4;

/// Whether the size of a text fits.
constexpr bool is_text_size(std::size_t bytes) {
  return bytes >> (8 * kTextSizeBytes) == 0;
}

/// The limits for a pickle of any size. The memory of the values is proportional to its bytes.
pickle::PickleLimits tensor_pickle_limits();

/// A call that these rules accept has arguments of the right kinds, so readers of the graph need
/// not check them again. Sizes and strides may still reach outside of the tensor's bytes.
class TensorRules final : public pickle::Rules {
 public:
  explicit TensorRules(TensorBytes where) : where_(where) {
    reals = true;
    // Drops `_metadata`, which has the versions of modules. LibTorch does not use them.
    drops_attributes_of_dicts = true;
  }

  std::optional<std::int64_t> find_name(std::string_view module,
                                        std::string_view name) const override;
  CallResult check_call(const pickle::Graph& graph, pickle::Ref callee,
                        pickle::Ref arguments) const override;
  std::string check_object(const pickle::Graph& graph, pickle::Ref of,
                           pickle::Ref arguments) const override;
  std::string check_attributes(const pickle::Graph& graph, pickle::Ref object,
                               pickle::Ref attributes) const override;
  std::string check_persistent(const pickle::Graph& graph, pickle::Ref id) const override;
  /// Also accepts a tensor as a key. Python compares such keys by identity.
  std::string check_key(const pickle::Graph& graph, pickle::Ref key) const override;

 private:
  TensorBytes where_;
};

/// Two parts of a persistent id: ('storage', class, key, location, number of elements).
struct StorageId {
  pickle::Ref type;
  std::string_view key;
};
StorageId storage_id(const pickle::Graph& graph, pickle::Ref persistent);

}  // namespace muster

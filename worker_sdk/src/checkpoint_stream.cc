#include "checkpoint_stream.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <locale>
#include <sstream>
#include <string_view>

#include "muster/collectives.h"
#include "muster/error.h"
#include "torch_versions.h"

namespace muster {
namespace {

constexpr std::int64_t kFailureBytes = 1024;
// The outline that is sent has a text in place of a large tensor: kLarge, dtype, sizes. A tuple
// would be one more container, and the snapshot may be nested to the limit already.
constexpr std::string_view kLarge = "muster: large tensor";

c10::Device transfer_device(const ProcessGroup& group) {
  return has_backend(*group.torch_group(), torch::kCPU) ? torch::kCPU : torch::kCUDA;
}

// Copies nested containers, and replaces every leaf. Throws Error above a limit of values, because
// a file may have one container twice in another, which is twice in a third one, and so on.
class OutlineMapper {
 public:
  using Leaf = std::function<c10::IValue(const c10::IValue&)>;
  explicit OutlineMapper(Leaf leaf) : leaf_(std::move(leaf)) {}

  c10::IValue map(const c10::IValue& value) {
    if (++values_ > kMaxOutlineValues)
      throw Error("the snapshot has more than " + std::to_string(kMaxOutlineValues) + " values.");
    if (value.isGenericDict()) {
      c10::impl::GenericDict to(c10::AnyType::get(), c10::AnyType::get());
      for (const auto& entry : value.toGenericDict()) {
        if (entry.key().isTensor()) throw Error("the snapshot has a dict with a tensor as key.");
        to.insert(entry.key(), map(entry.value()));
      }
      return to;
    }
    if (value.isList()) {
      c10::impl::GenericList to(c10::AnyType::get());
      for (const c10::IValue& element : value.toListRef())
        to.push_back(map(element));
      return to;
    }
    if (!value.isTuple()) return leaf_(value);
    std::vector<c10::IValue> to;
    for (const c10::IValue& element : value.toTupleRef().elements())
      to.push_back(map(element));
    return c10::ivalue::Tuple::create(std::move(to));
  }

 private:
  Leaf leaf_;
  std::size_t values_ = 0;
};

bool is_large(const c10::IValue& value) {
  return value.isString() && value.toStringRef().starts_with(kLarge);
}

std::string placeholder_of(const at::Tensor& tensor) {
  std::string text =
      std::string(kLarge) + ' ' + std::to_string(static_cast<int>(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes())
    text += ' ' + std::to_string(size);
  return text;
}

at::Tensor outlined_tensor(const std::string& placeholder) {
  std::istringstream numbers(placeholder.substr(kLarge.size()));
  numbers.imbue(std::locale::classic());
  int type = 0;
  numbers >> type;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 0; numbers >> size;)
    sizes.push_back(size);
  return at::empty(sizes, at::dtype(static_cast<c10::ScalarType>(type)).device(at::kMeta));
}

}  // namespace

void share_failures(const std::string& failure, const ProcessGroup& group) {
  at::Tensor own = at::zeros({kFailureBytes}, at::dtype(at::kByte));
  const std::size_t kept = std::min(failure.size(), static_cast<std::size_t>(kFailureBytes));
  std::copy_n(failure.begin(), kept, own.data_ptr<std::uint8_t>());
  const std::vector<at::Tensor> all = all_gather(own.to(transfer_device(group)), group);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const at::Tensor one = all[rank].cpu();
    const auto* first = reinterpret_cast<const char*>(one.data_ptr<std::uint8_t>());
    const std::string text(first, std::find(first, first + kFailureBytes, '\0'));
    if (!text.empty()) throw Error(rank == 0 ? text : "rank " + std::to_string(rank) + ": " + text);
  }
}

SnapshotStream::SnapshotStream(const PickleFile* file, ProcessGroup group)
    : file_(file), group_(std::move(group)) {
  std::string sent;
  std::string failure;
  if (file_ != nullptr) {
    try {
      OutlineMapper to_sent([this](const c10::IValue& value) -> c10::IValue {
        if (is_large(value)) throw Error("the snapshot has a text of muster's own.");
        if (!value.isTensor() || !value.toTensor().defined()) return value;
        const at::Tensor& tensor = value.toTensor();
        if (tensor.nbytes() <= kInlineTensorBytes) return file_->read(tensor);
        in_file_.push_back(tensor);
        return placeholder_of(tensor);
      });
      // All that can fail on rank 0 alone comes before share_failures().
      sent = write_pickle(to_sent.map(file_->outline()));
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  share_failures(failure, group_);
  sent = broadcast_bytes(sent, group_.global_rank(0), group_);
  OutlineMapper from_sent([this](const c10::IValue& value) -> c10::IValue {
    if (!is_large(value)) return value;
    large_.push_back(outlined_tensor(value.toStringRef()));
    index_of_[large_.back().unsafeGetTensorImpl()] = large_.size() - 1;
    return large_.back();
  });
  outline_ = from_sent.map(read_pickle(sent));
  copies_.resize(large_.size());
}

void SnapshotStream::copy_later(const at::Tensor& from, at::Tensor to) {
  const auto found = index_of_.find(from.unsafeGetTensorImpl());
  if (found == index_of_.end()) throw Error("copy_later: a tensor that is not in the snapshot.");
  copies_[found->second].push_back(std::move(to));
}

at::Tensor SnapshotStream::read_large(std::size_t index) const {
  return file_->read(in_file_.at(index)).contiguous();
}

void SnapshotStream::receive(c10::Device device) {
  const at::NoGradGuard no_grad;
  const c10::Device transfer = transfer_device(group_);
  const int source = group_.global_rank(0);
  for (std::size_t index = 0; index < large_.size(); ++index) {
    std::string failure;
    at::Tensor tensor;
    if (file_ != nullptr) {
      try {
        tensor = read_large(index);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    }
    failure = broadcast_bytes(failure, source, group_);
    if (!failure.empty()) throw Error(failure);
    tensor = file_ != nullptr
                 ? tensor.to(transfer)
                 : at::empty(large_[index].sizes(), large_[index].options().device(transfer));
    // Sends bytes, because backends do not support every type of elements.
    broadcast(tensor.flatten().view(at::kByte), source, group_);
    tensor = tensor.to(device);
    for (at::Tensor& to : copies_[index])
      to.copy_(tensor);
    copies_[index].clear();
  }
}

}  // namespace muster

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "pickle/reader.h"

#include "muster/error.h"
#include "pickle_file.h"
#include "pickle_rules.h"
#include "pickle_types.h"
#include "pickle_values.h"

namespace muster {
namespace {

// Reads from memory. LibTorch has such a class, but does not export it. The bytes must outlive the
// reader.
class BytesReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesReader(std::string_view bytes) : bytes_(bytes) {}
  std::size_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t position, void* to, std::size_t count,
                   const char* what) const override {
    if (position > bytes_.size() || count > bytes_.size() - position)
      throw Error(std::string("it is cut off: ") + what);
    std::memcpy(to, bytes_.data() + position, count);
    return count;
  }

 private:
  std::string_view bytes_;
};

/// Makes the tensors of an archive, whose bytes are in records beside the pickle.
class RecordTensors {
 public:
  using Places = std::map<const c10::TensorImpl*, PickleFile::Place>;

  /// If `places` is not null, the tensors get no elements, and `places` gets their positions in the
  /// archive.
  RecordTensors(caffe2::serialize::PyTorchStreamReader& archive, const pickle::Graph& graph,
                Places* places)
      : archive_(archive), graph_(graph), places_(places) {}

  at::Tensor make(const std::vector<pickle::Ref>& arguments) {
    const StorageId id = storage_id(graph_, arguments[0]);
    const c10::ScalarType type = scalar_type(id.type);
    const Storage& storage = storage_of(std::string(id.key));
    const Layout layout{.offset = graph_.at(arguments[1]).number,
                        .sizes = whole_numbers(arguments[2]),
                        .strides = whole_numbers(arguments[3])};
    check_inside(layout, static_cast<std::int64_t>(storage.size_bytes / c10::elementSize(type)));
    const auto options = at::dtype(type);
    if (places_ == nullptr)
      return at::empty({0}, options)
          .set_(storage.bytes, layout.offset, layout.sizes, layout.strides);
    at::Tensor outlined =
        at::empty_strided(layout.sizes, layout.strides, options.device(at::kMeta));
    (*places_)[outlined.unsafeGetTensorImpl()] = {.record = storage.record,
                                                  .offset = layout.offset};
    return outlined;
  }

 private:
  struct Storage {
    c10::Storage bytes;  // Null if `places_` is set.
    std::string record;  // The name of the record in the archive.
    std::size_t size_bytes = 0;
  };
  struct Layout {
    std::int64_t offset;  // In elements, like the strides.
    std::vector<std::int64_t> sizes, strides;
  };

  c10::ScalarType scalar_type(pickle::Ref of) const {
    const std::string name = pickle::class_name(graph_, of);
    for (const auto& [known, type] : kStorageTypes)
      if (name == "torch." + std::string(known)) return type;
    fail_pickle("a storage of the unknown type " + name);
  }

  const Storage& storage_of(const std::string& key) {
    const auto [found, is_new] = storages_.try_emplace(key);
    Storage& storage = found->second;
    if (!is_new) return storage;
    storage.record = "data/" + key;
    storage.size_bytes = archive_.getRecordSize(storage.record);
    if (places_ != nullptr) return storage;
    auto [data, size] = archive_.getRecord(storage.record);
    storage.bytes = c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data));
    storage.size_bytes = size;
    return storage;
  }

  std::vector<std::int64_t> whole_numbers(pickle::Ref tuple) const {
    std::vector<std::int64_t> numbers;
    for (const pickle::Ref item : graph_.at(tuple).items)
      numbers.push_back(graph_.at(item).number);
    return numbers;
  }

  /// Throws Error if the tensor reaches outside of its storage. Checks each bound before it
  /// multiplies, so that no product overflows.
  static void check_inside(const Layout& layout, std::int64_t elements) {
    const auto& [offset, sizes, strides] = layout;
    bool fits = offset >= 0 && offset <= elements && sizes.size() == strides.size();
    for (std::size_t i = 0; fits && i < sizes.size(); ++i)
      fits = sizes[i] >= 0 && strides[i] >= 0;
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    std::int64_t last = offset;
    for (std::size_t i = 0; fits && !empty && i < sizes.size(); ++i) {
      if (sizes[i] == 1) continue;
      fits = strides[i] == 0 || sizes[i] - 1 <= (elements - last) / strides[i];
      if (fits) last += (sizes[i] - 1) * strides[i];
    }
    if (!fits || (!empty && last >= elements)) fail_pickle("a tensor larger than its storage");
  }

  caffe2::serialize::PyTorchStreamReader& archive_;
  const pickle::Graph& graph_;
  Places* places_;
  std::map<std::string, Storage> storages_;
};

pickle::Ref read_graph(std::string_view bytes, TensorBytes where, pickle::Graph& graph) {
  const auto root = pickle::read_pickle(bytes, graph, TensorRules(where), tensor_pickle_limits());
  if (root) return *root;
  if (root.error().not_supported) fail_pickle(root.error().reason);
  throw Error("its pickle is torn or malformed at byte " + std::to_string(root.error().offset) +
              ": " + root.error().reason);
}

c10::IValue read_archive(caffe2::serialize::PyTorchStreamReader& archive,
                         RecordTensors::Places* places) {
  if (archive.hasRecord("byteorder")) {
    const auto [order, size] = archive.getRecord("byteorder");
    if (std::string_view(static_cast<const char*>(order.get()), size) != "little")
      throw Error("it was written on a big-endian machine");
  }
  const auto [bytes, size] = archive.getRecord("data.pkl");
  pickle::Graph graph;
  const pickle::Ref root =
      read_graph({static_cast<const char*>(bytes.get()), size}, TensorBytes::Beside, graph);
  RecordTensors tensors(archive, graph, places);
  return PickleValues(graph,
                      [&tensors](TorchName, const std::vector<pickle::Ref>& arguments) {
                        return tensors.make(arguments);
                      })
      .make(root);
}

/// Reads the tensor of a file in memory, without a copy of the file. The tensor does not refer to
/// `bytes`.
at::Tensor tensor_of_file(std::string_view bytes) {
  caffe2::serialize::PyTorchStreamReader archive(std::make_shared<BytesReader>(bytes));
  const c10::IValue value = read_archive(archive, nullptr);
  if (!value.isTensor()) fail_pickle("a file in it that is no tensor");
  return value.toTensor();
}

}  // namespace

c10::IValue read_pickle_file(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file) {
  caffe2::serialize::PyTorchStreamReader archive(std::move(file));
  return read_archive(archive, nullptr);
}

PickleFile::PickleFile(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file)
    : archive_(std::make_unique<caffe2::serialize::PyTorchStreamReader>(std::move(file))),
      outline_(read_archive(*archive_, &places_)) {}

PickleFile::~PickleFile() = default;

at::Tensor PickleFile::read(const at::Tensor& outlined) const {
  const Place& place = places_.at(outlined.unsafeGetTensorImpl());
  const std::size_t expected = archive_->getRecordSize(place.record);
  auto [data, size] = archive_->getRecord(place.record);
  if (size != expected) fail_pickle("a tensor that is cut off");
  const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(data));
  return at::empty({0}, at::dtype(outlined.scalar_type()))
      .set_(storage, place.offset, outlined.sizes(), outlined.strides());
}

c10::IValue read_pickle(std::string_view bytes) {
  pickle::Graph graph;
  const pickle::Ref root = read_graph(bytes, TensorBytes::Inside, graph);
  std::size_t copied = 0;  // Each file is in the pickle once, so the sum is limited by its size.
  return PickleValues(graph,
                      [&](TorchName, const std::vector<pickle::Ref>& arguments) {
                        const std::string_view file = graph.at(arguments[0]).text;
                        copied += file.size();
                        if (copied > bytes.size()) fail_pickle("one tensor's file again and again");
                        return tensor_of_file(file);
                      })
      .make(root);
}

}  // namespace muster

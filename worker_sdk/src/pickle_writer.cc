#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <limits>

#include "muster/error.h"
#include "pickle_file.h"
#include "pickle_rules.h"
#include "pickle_types.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors' bytes are written as they are");

std::vector<std::int64_t> written_strides(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

// Writes a value as a pickle. Python's Lib/pickle.py describes the opcodes.
class PickleWriter {
 public:
  explicit PickleWriter(TensorBytes where) : where_(where) {}

  std::string text;
  std::vector<at::Tensor> tensors;  // The given tensors. The n-th belongs to the record data/n.

  void value(const c10::IValue& value) {
    if (value.isNone()) {
      text += 'N';
    } else if (value.isBool()) {
      text += value.toBool() ? '\x88' : '\x89';
    } else if (value.isInt()) {
      integer(value.toInt());
    } else if (value.isDouble()) {
      real(value.toDouble());
    } else if (value.isString()) {
      string(value.toStringRef());
    } else if (value.isTensor()) {
      where_ == TensorBytes::Beside ? tensor(value.toTensor()) : whole_file(value.toTensor());
    } else if (value.isGenericDict() || value.isList() || value.isTuple()) {
      if (++depth_ > kMaxContainerDepth)
        throw Error("more than " + std::to_string(kMaxContainerDepth) +
                    " containers inside each other, or one inside of itself, cannot be written.");
      container(value);
      --depth_;
    } else {
      throw Error("a " + value.tagKind() +
                  " cannot be written: expected tensors, numbers, texts, None, bool, and lists, "
                  "tuples and dicts of them.");
    }
  }

 private:
  void container(const c10::IValue& value) {
    if (value.isGenericDict()) {
      text += "}(";
      for (const auto& entry : value.toGenericDict()) {
        this->value(entry.key());
        this->value(entry.value());
      }
      text += 'u';
    } else if (value.isList()) {
      text += "](";
      for (const c10::IValue& element : value.toListRef())
        this->value(element);
      text += 'e';
    } else {
      text += '(';
      for (const auto& element : value.toTupleRef().elements())
        this->value(element);
      text += 't';
    }
  }

  void little_endian(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i)
      text += static_cast<char>(number >> (8 * i) & 0xff);
  }

  void integer(std::int64_t number) {
    using Small = std::numeric_limits<std::int32_t>;
    const bool small = number >= Small::min() && number <= Small::max();
    text += small ? "J" : "\x8a\x08";  // BININT, or LONG1 of eight bytes
    little_endian(static_cast<std::uint64_t>(number), small ? 4 : 8);
  }

  void real(double number) {
    const auto bits = std::bit_cast<std::uint64_t>(number);
    text += 'G';
    for (int i = 7; i >= 0; --i)
      text += static_cast<char>(bits >> (8 * i) & 0xff);
  }

  void string(std::string_view value) {
    if (!is_text_size(value.size()))
      throw Error("a text of " + std::to_string(value.size()) +
                  " bytes cannot be written: expected less than 4 GiB.");
    text += 'X';  // BINUNICODE
    little_endian(value.size(), kTextSizeBytes);
    text += value;
  }

  void numbers(at::IntArrayRef values) {
    text += '(';
    for (const auto number : values)
      integer(number);
    text += 't';
  }

  void tensor(const at::Tensor& given) {
    if (!given.defined()) return void(text += 'N');
    std::string_view type;
    for (const auto& [name, scalar] : kStorageTypes)
      if (scalar == given.scalar_type()) type = name;
    if (type.empty() || given.layout() != at::kStrided)
      throw Error(std::string("a tensor of ") + c10::toString(given.scalar_type()) +
                  " that is not dense or not of a known type cannot be written.");
    text += "ctorch._utils\n_rebuild_tensor_v2\n((";
    string("storage");
    text += "ctorch\n" + std::string(type) + "\n";
    string(std::to_string(tensors.size()));
    string("cpu");
    integer(given.numel());
    text += "tQ";  // The persistent id of the storage.
    integer(0);
    numbers(given.sizes());
    numbers(written_strides(given.sizes()));
    text += '\x89';  // requires_grad: False
    text += "ccollections\nOrderedDict\n)RtR";
    tensors.push_back(given.detach());
  }

  // Writes a call of torch's function that loads a tensor from bytes, as Python's own pickles of
  // tensors do.
  void whole_file(const at::Tensor& given) {
    if (!given.defined()) return void(text += 'N');
    const std::vector<char> bytes = write_pickle_file(given);
    text += "ctorch.storage\n_load_from_bytes\n\x8e";  // BINBYTES8
    little_endian(bytes.size(), 8);
    text.append(bytes.begin(), bytes.end());
    text += "\x85R";
  }

  TensorBytes where_;
  int depth_ = 0;
};

}  // namespace

void write_pickle_file(const c10::IValue& value,
                       const std::function<void(const void* data, std::size_t size)>& write) {
  PickleWriter pickle(TensorBytes::Beside);
  pickle.text = "\x80\x02";  // PROTO 2
  pickle.value(value);
  pickle.text += '.';
  std::exception_ptr failure;  // The archive's code is C. An exception must not pass through it.
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, std::size_t size) {
    if (failure) return size;
    try {
      write(data, size);
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  });
  const auto write_record = [&](const std::string& name, const void* data, std::size_t size) {
    archive.writeRecord(name, data, size);
    if (failure) archive.writeEndOfFile();  // Its destructor would warn of an unfinished archive.
    if (failure) std::rethrow_exception(failure);
  };
  write_record("data.pkl", pickle.text.data(), pickle.text.size());
  write_record("byteorder", "little", 6);
  for (std::size_t i = 0; i < pickle.tensors.size(); ++i) {
    // A conjugated or negated view shares the memory of its original, which has other numbers.
    const at::Tensor whole = pickle.tensors[i].cpu().resolve_conj().resolve_neg().contiguous();
    write_record("data/" + std::to_string(i), whole.const_data_ptr(), whole.nbytes());
  }
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

std::vector<char> write_pickle_file(const c10::IValue& value) {
  std::vector<char> bytes;
  write_pickle_file(value, [&bytes](const void* data, std::size_t size) {
    const char* first = static_cast<const char*>(data);
    bytes.insert(bytes.end(), first, first + size);
  });
  return bytes;
}

std::string write_pickle(const c10::IValue& value) {
  PickleWriter pickle(TensorBytes::Inside);
  pickle.text = "\x80\x04";  // PROTO 4: the first that has BINBYTES8.
  pickle.value(value);
  pickle.text += '.';
  return std::move(pickle.text);
}

}  // namespace muster

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>

#include <bit>
#include <limits>

#include "muster/error.h"
#include "pickle_file.h"
#include "pickle_types.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors' bytes are written as they are");

// Python's Lib/pickle.py names the opcodes.
class PickleWriter {
 public:
  std::string text = "\x80\x02";    // PROTO 2
  std::vector<at::Tensor> tensors;  // Contiguous, on the CPU; the n-th is the record data/n.

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
      tensor(value.toTensor());
    } else if (value.isGenericDict()) {
      text += "}(";
      for (const auto& entry : value.toGenericDict()) {
        this->value(entry.key());
        this->value(entry.value());
      }
      text += 'u';
    } else if (value.isList()) {
      text += "](";
      for (const auto& element : value.toListRef())
        this->value(element);
      text += 'e';
    } else if (value.isTuple()) {
      text += '(';
      for (const auto& element : value.toTupleRef().elements())
        this->value(element);
      text += 't';
    } else {
      throw Error("save_file: a " + value.tagKind() +
                  " cannot be saved: expected tensors, numbers, texts, None, bool, and lists, "
                  "tuples and dicts of them.");
    }
  }

 private:
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
    text += 'X';
    little_endian(value.size(), 4);
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
    const at::Tensor whole = given.detach().cpu().contiguous();
    std::string_view type;
    for (const auto& [name, scalar] : kStorageTypes)
      if (scalar == whole.scalar_type()) type = name;
    if (type.empty() || whole.layout() != at::kStrided)
      throw Error(std::string("save_file: a tensor of ") + c10::toString(given.scalar_type()) +
                  " that is not dense or not of a known type cannot be saved.");
    text += "ctorch._utils\n_rebuild_tensor_v2\n((";
    string("storage");
    text += "ctorch\n" + std::string(type) + "\n";
    string(std::to_string(tensors.size()));
    string("cpu");
    integer(whole.numel());
    text += "tQ";  // The persistent id of the bytes.
    integer(0);
    numbers(whole.sizes());
    numbers(whole.strides());
    text += '\x89';  // requires_grad: False
    text += "ccollections\nOrderedDict\n)RtR";
    tensors.push_back(whole);
  }
};

}  // namespace

std::vector<char> write_pickle_file(const c10::IValue& value) {
  PickleWriter pickle;
  pickle.value(value);
  pickle.text += '.';
  std::vector<char> bytes;
  caffe2::serialize::PyTorchStreamWriter archive([&bytes](const void* data, std::size_t size) {
    const char* first = static_cast<const char*>(data);
    bytes.insert(bytes.end(), first, first + size);
    return size;
  });
  archive.writeRecord("data.pkl", pickle.text.data(), pickle.text.size());
  archive.writeRecord("byteorder", "little", 6);
  for (std::size_t i = 0; i < pickle.tensors.size(); ++i)
    archive.writeRecord("data/" + std::to_string(i), pickle.tensors[i].const_data_ptr(),
                        pickle.tensors[i].nbytes());
  archive.writeEndOfFile();
  return bytes;
}

}  // namespace muster

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <bit>
#include <cstring>
#include <map>
#include <optional>

#include "muster/error.h"
#include "pickle_file.h"
#include "pickle_items.h"
#include "pickle_types.h"

namespace muster {
namespace {

using pickle::dotted;
using pickle::fail;
using pickle::Item;
using pickle::to_value;
using pickle::tuple_parts;

// LibTorch has such a class, but does not export it.
class BytesReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesReader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
  std::size_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t position, void* to, std::size_t count,
                   const char* what) const override {
    if (position > bytes_.size() || count > bytes_.size() - position)
      throw Error(std::string("it is cut off: ") + what);
    std::memcpy(to, bytes_.data() + position, count);
    return count;
  }

 private:
  std::vector<char> bytes_;
};

class PickleReader {
 public:
  using Places = std::map<const c10::TensorImpl*, PickleFile::Place>;

  // A file of torch.save, whose tensors are beside the pickle. With `places` tensors have no
  // elements, and their places in the archive are stored there.
  explicit PickleReader(caffe2::serialize::PyTorchStreamReader& archive, Places* places = nullptr)
      : archive_(&archive), places_(places) {
    if (archive_->hasRecord("byteorder")) {
      const auto [order, size] = archive_->getRecord("byteorder");
      if (std::string_view(static_cast<const char*>(order.get()), size) != "little")
        throw Error("it was written on a big-endian machine");
    }
    const auto [pickle, size] = archive_->getRecord("data.pkl");
    text_.assign(static_cast<const char*>(pickle.get()), size);
  }

  // A pickle alone: plain values.
  explicit PickleReader(std::string pickle) : text_(std::move(pickle)) {}

  c10::IValue read() {
    while (step(take(1)[0])) {
    }
    c10::IValue value = to_value(pop());
    containers_.check(value);
    return value;
  }

 private:
  std::string_view take(std::size_t count) {
    if (text_.size() - at_ < count) fail("no end: it is cut off");
    at_ += count;
    return std::string_view(text_).substr(at_ - count, count);
  }

  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::string_view digits = take(bytes);
    for (std::size_t i = bytes; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(digits[i]);
    return value;
  }

  std::string line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string::npos) fail("no end: it is cut off");
    std::string word = text_.substr(at_, end - at_);
    at_ = end + 1;
    return word;
  }

  Item pop() {
    if (stack_.empty()) fail("an operation without operand");
    Item item = std::move(stack_.back());
    stack_.pop_back();
    return item;
  }

  void push(c10::IValue value) { stack_.push_back(pickle::value(std::move(value))); }

  std::vector<Item> pop_to_mark() {
    std::size_t first = stack_.size();
    while (first > 0 && stack_[first - 1].kind != Item::Kind::Mark)
      --first;
    if (first == 0) fail("an operation without mark");
    std::vector<Item> items(
        std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(first)),
        std::make_move_iterator(stack_.end()));
    stack_.resize(first - 1);
    return items;
  }

  void push_tuple(std::vector<Item> parts) { stack_.push_back(pickle::tuple(std::move(parts))); }

  // A list or dict.
  void push_container(c10::IValue value) {
    containers_.add(value);
    push(std::move(value));
  }

  void push_tuple_of(std::size_t count) {
    std::vector<Item> parts(count);
    for (std::size_t i = count; i-- > 0;)
      parts[i] = pop();
    push_tuple(std::move(parts));
  }

  // Onto the dict or list that lies below.
  void add(const std::vector<Item>& items) {
    if (stack_.empty()) fail("items for nothing");
    const c10::IValue target = to_value(stack_.back());
    if (target.isGenericDict()) {
      if (items.size() % 2 != 0) fail("a key without value");
      auto dict = target.toGenericDict();
      for (std::size_t i = 0; i < items.size(); i += 2)
        dict.insert_or_assign(to_value(items[i]), to_value(items[i + 1]));
    } else {
      auto list = target.toList();
      for (const Item& item : items)
        list.push_back(to_value(item));
    }
  }

  pickle::Storage read_storage(const std::string& record) {
    pickle::Storage storage;
    storage.record = record;
    if (places_ == nullptr) {
      auto [data, size] = archive_->getRecord(record);
      storage.bytes = c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data));
      storage.size_bytes = size;
    } else {
      storage.size_bytes = archive_->getRecordSize(record);
    }
    return storage;
  }

  void persistent_id() {
    const Item id = pop();
    if (archive_ == nullptr) fail("a tensor's storage, which is not in it");
    const auto& parts = tuple_parts(id, 5);
    const std::string key = to_value(parts[2]).toStringRef();
    Item item;
    item.kind = Item::Kind::Storage;
    bool known = false;
    for (const auto& [name, type] : kStorageTypes) {
      if (parts[1].name != "torch " + std::string(name)) continue;
      item.storage.type = type;
      known = true;
    }
    if (!known) fail("a storage of the unknown type " + parts[1].name);
    auto& known_storage = storages_[key];
    if (!known_storage) known_storage = read_storage("data/" + key);
    item.storage.bytes = known_storage->bytes;
    item.storage.record = known_storage->record;
    item.storage.size_bytes = known_storage->size_bytes;
    stack_.push_back(std::move(item));
  }

  // torch.load() of bytes, which stand for a tensor here. Not in files, which have records.
  void load_from_bytes(const Item& bytes) {
    if (archive_ != nullptr || bytes.kind != Item::Kind::Bytes) fail("a file in a file");
    if (!bytes.name.starts_with("PK"))
      fail("a tensor as Python's pickle writes it: send it with broadcast()");
    const c10::IValue value =
        read_pickle_file(std::vector<char>(bytes.name.begin(), bytes.name.end()));
    if (!value.isTensor()) fail("a file in it that is no tensor");
    push(value);
  }

  at::Tensor tensor_of(const std::vector<Item>& arguments) {
    at::Tensor tensor = pickle::rebuild_tensor(arguments);
    if (places_ != nullptr)
      (*places_)[tensor.unsafeGetTensorImpl()] = {.record = arguments[0].storage.record,
                                                  .offset = to_value(arguments[1]).toInt()};
    return tensor;
  }

  void reduce() {
    const Item arguments = pop();
    const Item callee = pop();
    if (callee.kind == Item::Kind::Name && callee.name == "torch._utils _rebuild_tensor_v2")
      return push(tensor_of(tuple_parts(arguments, 4)));
    if (callee.kind == Item::Kind::Name && callee.name == "torch._utils _rebuild_parameter")
      return push(to_value(tuple_parts(arguments, 1)[0]));
    if (callee.kind == Item::Kind::Name && callee.name == "collections OrderedDict" &&
        tuple_parts(arguments, 0).empty())
      return push_container(c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()));
    if (callee.kind == Item::Kind::Name && callee.name == "torch.storage _load_from_bytes")
      return load_from_bytes(tuple_parts(arguments, 1)[0]);
    fail("a call of " + dotted(callee.name) + ", which is not executed");
  }

  // What Python writes for values that are not read here.
  [[noreturn]] void refuse(char opcode) {
    switch (opcode) {
      case '\x92':  // NEWOBJ_EX: a class and two kinds of arguments
        pop();
        [[fallthrough]];
      case '\x81':  // NEWOBJ
        pop();
        fail("an object of the class " + dotted(pop().name));
      case '\x8b':  // LONG4
        fail("a number of more than 64 bits");
      case '\x8f':  // EMPTY_SET
      case '\x91':  // FROZENSET
        fail("a set");
      case '\x96':  // BYTEARRAY8
        fail("a bytearray");
      default:
        fail("the operation " + std::to_string(static_cast<unsigned char>(opcode)) +
             ", which neither weights nor plain values have");
    }
  }

  void long_integer() {
    const auto bytes = static_cast<std::size_t>(number(1));
    if (bytes > 8) fail("a number of more than 64 bits");
    std::uint64_t bits = number(bytes);
    if (bytes > 0 && bytes < 8 && (bits >> (8 * bytes - 1)) != 0)
      bits |= ~std::uint64_t{0} << (8 * bytes);
    push(static_cast<std::int64_t>(bits));
  }

  void memoize(std::uint64_t index) {
    if (stack_.empty()) fail("nothing to remember");
    memo_[index] = stack_.back();
  }

  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("a reference to nothing");
    stack_.push_back(found->second);
  }

  void mark() {
    Item item;
    item.kind = Item::Kind::Mark;
    stack_.push_back(std::move(item));
  }

  void push_bytes(std::uint64_t count) {
    Item item;
    item.kind = Item::Kind::Bytes;
    item.name = take(count);
    stack_.push_back(std::move(item));
  }

  void push_name(const std::string& module, const std::string& name) {
    Item item;
    item.kind = Item::Kind::Name;
    item.name = module + " " + name;
    stack_.push_back(std::move(item));
  }

  // One operation; whether there is another.
  bool step(char opcode) {
    switch (opcode) {
      case '\x80':
        take(1);
        return true;  // PROTO
      case '\x95':
        take(8);
        return true;  // FRAME: how much to read at once; all of it is here already.
      case '.':
        return false;  // STOP
      case 'N':
        push({});
        return true;  // NONE
      case '\x88':
        push(true);
        return true;  // NEWTRUE
      case '\x89':
        push(false);
        return true;  // NEWFALSE
      case 'J':
        push(std::int64_t{static_cast<std::int32_t>(number(4))});
        return true;
      case 'K':
        push(static_cast<std::int64_t>(number(1)));
        return true;  // BININT1
      case 'M':
        push(static_cast<std::int64_t>(number(2)));
        return true;  // BININT2
      case '\x8a':
        long_integer();
        return true;  // LONG1
      case 'G':
        push(real());
        return true;  // BINFLOAT
      case 'X':
        push(std::string(take(number(4))));
        return true;  // BINUNICODE
      case '\x8c':
        push(std::string(take(number(1))));
        return true;  // SHORT_BINUNICODE
      case '\x8d':
        push(std::string(take(number(8))));
        return true;  // BINUNICODE8
      case 'C':
        push_bytes(number(1));
        return true;  // SHORT_BINBYTES
      case 'B':
        push_bytes(number(4));
        return true;  // BINBYTES
      case '\x8e':
        push_bytes(number(8));
        return true;  // BINBYTES8
      case '}':
        push_container(c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()));
        return true;
      case ']':
        push_container(c10::impl::GenericList(c10::AnyType::get()));
        return true;
      case ')':
        push_tuple({});
        return true;
      case '\x85':
        push_tuple_of(1);
        return true;
      case '\x86':
        push_tuple_of(2);
        return true;
      case '\x87':
        push_tuple_of(3);
        return true;
      case '(':
        mark();
        return true;
      case 't':
        push_tuple(pop_to_mark());
        return true;
      case 'u':
      case 'e':
        add(pop_to_mark());
        return true;  // SETITEMS, APPENDS
      case 's': {
        Item value = pop();
        Item key = pop();
        add({key, value});
        return true;
      }
      case 'a': {
        Item value = pop();
        add({value});
        return true;
      }
      case 'c': {
        const std::string module = line();
        push_name(module, line());
        return true;
      }
      case '\x93': {
        const std::string name = to_value(pop()).toStringRef();
        push_name(to_value(pop()).toStringRef(), name);
        return true;  // STACK_GLOBAL
      }
      case 'Q':
        persistent_id();
        return true;
      case 'R':
        reduce();
        return true;
      // A state_dict's _metadata: versions of modules, which LibTorch has no use for.
      case 'b':
        pop();
        return true;  // BUILD
      case '\x94':
        memoize(memo_.size());
        return true;
      case 'q':
        memoize(number(1));
        return true;
      case 'r':
        memoize(number(4));
        return true;
      case 'h':
        recall(number(1));
        return true;
      case 'j':
        recall(number(4));
        return true;
      default:
        refuse(opcode);
    }
  }

  double real() {
    std::uint64_t bits = 0;
    for (const char byte : take(8))
      bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  caffe2::serialize::PyTorchStreamReader* archive_ = nullptr;
  Places* places_ = nullptr;
  std::string text_;
  std::size_t at_ = 0;
  std::vector<Item> stack_;
  std::map<std::uint64_t, Item> memo_;
  std::map<std::string, std::optional<pickle::Storage>> storages_;
  pickle::Containers containers_;
};

}  // namespace

c10::IValue read_pickle_file(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file) {
  caffe2::serialize::PyTorchStreamReader archive(std::move(file));
  return PickleReader(archive).read();
}

c10::IValue read_pickle_file(std::vector<char> bytes) {
  return read_pickle_file(std::make_shared<BytesReader>(std::move(bytes)));
}

PickleFile::PickleFile(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file)
    : archive_(std::make_unique<caffe2::serialize::PyTorchStreamReader>(std::move(file))),
      outline_(PickleReader(*archive_, &places_).read()) {}

PickleFile::~PickleFile() = default;

at::Tensor PickleFile::read(const at::Tensor& outlined) const {
  const Place& place = places_.at(outlined.unsafeGetTensorImpl());
  const std::size_t expected = archive_->getRecordSize(place.record);
  auto [data, size] = archive_->getRecord(place.record);
  if (size != expected) fail("a tensor that is cut off");
  const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(data));
  return at::empty({0}, at::dtype(outlined.scalar_type()))
      .set_(storage, place.offset, outlined.sizes(), outlined.strides());
}

c10::IValue read_pickle(std::string pickle) {
  return PickleReader(std::move(pickle)).read();
}

}  // namespace muster

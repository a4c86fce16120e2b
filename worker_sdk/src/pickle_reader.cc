#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "muster/error.h"
#include "pickle_file.h"
#include "pickle_types.h"

namespace muster {
namespace {

constexpr int kMaxDepth = 100;  // Of tuples in tuples, which are converted by recursion.

struct Storage {
  c10::Storage bytes;
  c10::ScalarType type = c10::ScalarType::Float;
};

// What is on the unpickler's stack.
struct Item {
  enum class Kind { Value, Mark, Name, Storage, Tuple };
  Kind kind = Kind::Value;
  c10::IValue value;  // Dicts and lists are shared by all copies, as Python's objects are.
  std::string name;   // "module name" of a GLOBAL.
  Storage storage;
  std::vector<Item> parts;  // Of a tuple, which may hold names and storages.
  int depth = 0;
};

[[noreturn]] void fail(const std::string& what) {
  throw Error("its pickle has " + what);
}

Item value_item(c10::IValue value) {
  Item item;
  item.value = std::move(value);
  return item;
}

c10::IValue to_value(const Item& item) {
  if (item.kind == Item::Kind::Value) return item.value;
  if (item.kind != Item::Kind::Tuple) fail("the name or storage " + item.name + " as a value");
  std::vector<c10::IValue> parts;
  for (const Item& part : item.parts)
    parts.push_back(to_value(part));
  return c10::ivalue::Tuple::create(std::move(parts));
}

const std::vector<Item>& tuple_parts(const Item& item, std::size_t least) {
  if (item.kind != Item::Kind::Tuple || item.parts.size() < least)
    fail("something else where a tuple of " + std::to_string(least) + " must be");
  return item.parts;
}

std::vector<std::int64_t> whole_numbers(const Item& item) {
  std::vector<std::int64_t> numbers;
  for (const Item& part : tuple_parts(item, 0))
    numbers.push_back(to_value(part).toInt());
  return numbers;
}

at::Tensor rebuild_tensor(const std::vector<Item>& arguments) {
  const Item& source = arguments[0];
  if (source.kind != Item::Kind::Storage) fail("a tensor without storage");
  const std::int64_t offset = to_value(arguments[1]).toInt();
  const auto sizes = whole_numbers(arguments[2]);
  const auto strides = whole_numbers(arguments[3]);
  const auto bytes = static_cast<std::int64_t>(source.storage.bytes.nbytes());
  const auto elements = bytes / static_cast<std::int64_t>(c10::elementSize(source.storage.type));
  // Nothing outside of the storage may be reached. Each bound is checked before it is multiplied.
  std::int64_t last = offset;
  bool empty = false;
  bool fits = offset >= 0 && offset <= elements && sizes.size() == strides.size();
  for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
    fits = sizes[i] >= 0 && strides[i] >= 0;
    empty = empty || sizes[i] == 0;
    if (!fits || sizes[i] <= 1) continue;
    fits = strides[i] == 0 || sizes[i] - 1 <= (elements - last) / strides[i];
    if (fits) last += (sizes[i] - 1) * strides[i];
  }
  if (!fits || (!empty && last >= elements)) fail("a tensor larger than its storage");
  return at::empty({0}, at::dtype(source.storage.type))
      .set_(source.storage.bytes, offset, sizes, strides);
}

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
  // A file of torch.save, whose tensors are beside the pickle.
  explicit PickleReader(std::vector<char> bytes)
      : archive_(std::make_unique<caffe2::serialize::PyTorchStreamReader>(
            std::make_shared<BytesReader>(std::move(bytes)))) {
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
    return to_value(pop());
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

  void push(c10::IValue value) { stack_.push_back(value_item(std::move(value))); }

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

  void push_tuple(std::vector<Item> parts) {
    Item item;
    item.kind = Item::Kind::Tuple;
    for (const Item& part : parts)
      item.depth = std::max(item.depth, part.depth + 1);
    if (item.depth > kMaxDepth) fail("tuples more than 100 deep");
    item.parts = std::move(parts);
    stack_.push_back(std::move(item));
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

  void persistent_id() {
    const Item id = pop();
    if (!archive_) fail("a tensor's storage, which is not in it");
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
    auto& bytes = storages_[key];
    if (!bytes) {
      auto [data, size] = archive_->getRecord("data/" + key);
      bytes = c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data));
    }
    item.storage.bytes = bytes;
    stack_.push_back(std::move(item));
  }

  void reduce() {
    const Item arguments = pop();
    const Item callee = pop();
    if (callee.kind == Item::Kind::Name && callee.name == "torch._utils _rebuild_tensor_v2")
      return push(rebuild_tensor(tuple_parts(arguments, 4)));
    if (callee.kind == Item::Kind::Name && callee.name == "torch._utils _rebuild_parameter")
      return push(to_value(tuple_parts(arguments, 1)[0]));
    if (callee.kind == Item::Kind::Name && callee.name == "collections OrderedDict" &&
        tuple_parts(arguments, 0).empty())
      return push(c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()));
    fail("a call of " + callee.name + ", which is not executed");
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
      case '}':
        push(c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()));
        return true;
      case ']':
        push(c10::impl::GenericList(c10::AnyType::get()));
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
        fail("the operation " + std::to_string(static_cast<unsigned char>(opcode)) +
             ", which neither weights nor plain values have");
    }
  }

  double real() {
    std::uint64_t bits = 0;
    for (const char byte : take(8))
      bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> archive_;
  std::string text_;
  std::size_t at_ = 0;
  std::vector<Item> stack_;
  std::map<std::uint64_t, Item> memo_;
  std::map<std::string, c10::Storage> storages_;
};

}  // namespace

c10::IValue read_pickle_file(std::vector<char> bytes) {
  return PickleReader(std::move(bytes)).read();
}

c10::IValue read_pickle(std::string pickle) {
  return PickleReader(std::move(pickle)).read();
}

}  // namespace muster

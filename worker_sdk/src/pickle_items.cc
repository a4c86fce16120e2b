#include "pickle_items.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>

#include "muster/error.h"

namespace muster::pickle {
namespace {

// Sizes and strides.
std::vector<std::int64_t> whole_numbers(const Item& item) {
  std::vector<std::int64_t> numbers;
  for (const Item& part : tuple_parts(item, 0))
    numbers.push_back(to_value(part).toInt());
  return numbers;
}

// Each container once, however often it is referred to.
class Walk {
 public:
  // How many containers are inside each other at most; fails before it calls itself too often.
  int height(const c10::IValue& value) {
    if (!value.isGenericDict() && !value.isList() && !value.isTuple()) return 0;
    const auto [known, is_new] = heights_.emplace(value.internalToPointer(), kUnderWay);
    if (!is_new && known->second == kUnderWay) fail("a container inside of itself");
    if (!is_new) return known->second;
    if (++depth_ > kMaxDepth) fail_deep();
    int highest = 0;
    if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict())
        highest = std::max(highest, height(entry.value()));
    } else {
      const auto parts = value.isList() ? value.toListRef()
                                        : at::ArrayRef<c10::IValue>(value.toTupleRef().elements());
      for (const c10::IValue& part : parts)
        highest = std::max(highest, height(part));
    }
    --depth_;
    if (highest + 1 > kMaxDepth) fail_deep();
    return known->second = highest + 1;
  }

  std::vector<const void*> seen() const {  // In the order of addresses.
    std::vector<const void*> all;
    all.reserve(heights_.size());
    for (const auto& [address, unused] : heights_)
      all.push_back(address);
    return all;
  }

 private:
  static constexpr int kUnderWay = -1;

  [[noreturn]] static void fail_deep() {
    fail("more than " + std::to_string(kMaxDepth) + " containers inside each other");
  }

  std::map<const void*, int> heights_;
  int depth_ = 0;
};

}  // namespace

void fail(const std::string& what) {
  throw Error("its pickle has " + what);
}

std::string dotted(std::string name) {
  const std::size_t space = name.find(' ');
  if (space != std::string::npos) name[space] = '.';
  return name;
}

Item value(c10::IValue value) {
  Item item;
  item.value = std::move(value);
  return item;
}

Item tuple(std::vector<Item> parts) {
  Item item;
  item.kind = Item::Kind::Tuple;
  item.tuple = std::make_shared<Tuple>();
  for (const Item& part : parts)
    if (part.tuple) item.tuple->depth = std::max(item.tuple->depth, part.tuple->depth + 1);
  if (item.tuple->depth > kMaxDepth)
    fail("more than " + std::to_string(kMaxDepth) + " tuples inside each other");
  item.tuple->parts = std::move(parts);
  return item;
}

c10::IValue to_value(const Item& item) {
  if (item.kind == Item::Kind::Value) return item.value;
  if (item.kind == Item::Kind::Bytes) fail("bytes, which are not read");
  if (item.kind == Item::Kind::Name) fail("the name " + dotted(item.name) + " as a value");
  if (item.kind != Item::Kind::Tuple) fail("a storage or mark as a value");
  if (item.tuple->value.isNone()) {
    std::vector<c10::IValue> parts;
    for (const Item& part : item.tuple->parts)
      parts.push_back(to_value(part));
    item.tuple->value = c10::ivalue::Tuple::create(std::move(parts));
  }
  return item.tuple->value;
}

const std::vector<Item>& tuple_parts(const Item& item, std::size_t least) {
  if (item.kind != Item::Kind::Tuple || item.tuple->parts.size() < least)
    fail("something else where a tuple of " + std::to_string(least) + " must be");
  return item.tuple->parts;
}

at::Tensor rebuild_tensor(const std::vector<Item>& arguments) {
  const Item& source = arguments[0];
  if (source.kind != Item::Kind::Storage) fail("a tensor without storage");
  const std::int64_t offset = to_value(arguments[1]).toInt();
  const auto sizes = whole_numbers(arguments[2]);
  const auto strides = whole_numbers(arguments[3]);
  const auto elements =
      static_cast<std::int64_t>(source.storage.size_bytes / c10::elementSize(source.storage.type));
  bool fits = offset >= 0 && offset <= elements && sizes.size() == strides.size();
  for (std::size_t i = 0; fits && i < sizes.size(); ++i)
    fits = sizes[i] >= 0 && strides[i] >= 0;
  // Nothing outside of the storage may be reached. Each bound is checked before it is multiplied.
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  std::int64_t last = offset;
  for (std::size_t i = 0; fits && !empty && i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    fits = strides[i] == 0 || sizes[i] - 1 <= (elements - last) / strides[i];
    if (fits) last += (sizes[i] - 1) * strides[i];
  }
  if (!fits || (!empty && last >= elements)) fail("a tensor larger than its storage");
  const auto type = at::dtype(source.storage.type);
  if (!source.storage.bytes) return at::empty_strided(sizes, strides, type.device(at::kMeta));
  return at::empty({0}, type).set_(source.storage.bytes, offset, sizes, strides);
}

void Containers::check(const c10::IValue& value) {
  Walk walk;
  walk.height(value);
  approved_ = walk.seen();
}

Containers::~Containers() {
  // What one of them loses is still held by this list: freeing goes one level deep only.
  for (const c10::IValue& one : all_) {
    if (std::binary_search(approved_.begin(), approved_.end(), one.internalToPointer())) continue;
    if (one.isGenericDict())
      one.toGenericDict().clear();
    else
      one.toList().clear();
  }
}

}  // namespace muster::pickle

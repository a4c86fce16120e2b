// What is on an unpickler's stack, and what it must not become. Private.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::pickle {

/// Of containers in containers, in a file and in what is written to one: far more than states
/// have, and few enough for functions that call themselves.
inline constexpr int kMaxDepth = 100;

struct Storage {
  c10::Storage bytes;  // Null: only the outline is read.
  std::string record;  // Its name in the archive.
  std::size_t size_bytes = 0;
  c10::ScalarType type = c10::ScalarType::Float;
};

struct Tuple;

struct Item {
  enum class Kind { Value, Mark, Name, Storage, Tuple, Bytes };
  Kind kind = Kind::Value;
  c10::IValue value;  // Dicts and lists are shared by all copies, as Python's objects are.
  std::string name;   // "module name" of a GLOBAL; the bytes of Bytes.
  Storage storage;
  std::shared_ptr<Tuple> tuple;
};

/// May hold names and storages; shared by all copies of its item: a tuple of itself twice, and that
/// twice, would otherwise grow with every step.
struct Tuple {
  std::vector<Item> parts;
  int depth = 0;
  c10::IValue value;  // Once somebody has asked for it.
};

[[noreturn]] void fail(const std::string& what);

/// "module.name" of an item's "module name".
std::string dotted(std::string name);

Item value(c10::IValue value);
Item tuple(std::vector<Item> parts);
c10::IValue to_value(const Item& item);
const std::vector<Item>& tuple_parts(const Item& item, std::size_t least);

/// What torch._utils._rebuild_tensor_v2 makes of its arguments; without elements, on the device
/// "meta", if the storage has no bytes. Fails if it would reach outside of its storage.
at::Tensor rebuild_tensor(const std::vector<Item>& arguments);

/// All lists and dicts that a pickle has made: it may have put one into itself, or thousands into
/// each other, and neither may be walked through, or freed, by functions that call themselves.
class Containers {
 public:
  Containers() = default;
  /// Empties all that are not part of what check() has approved, one by one.
  ~Containers();
  Containers(const Containers&) = delete;
  Containers& operator=(const Containers&) = delete;

  void add(c10::IValue container) { all_.push_back(std::move(container)); }
  /// Fails if `value` has a container inside of itself, or more than kMaxDepth inside each other.
  void check(const c10::IValue& value);

 private:
  std::vector<c10::IValue> all_;
  std::vector<const void*> approved_;  // Sorted.
};

}  // namespace muster::pickle

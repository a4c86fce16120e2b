#include "pickle_values.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "muster/error.h"

namespace muster {
namespace {

using pickle::Kind;
using pickle::Ref;

[[noreturn]] void fail_deep() {
  fail_pickle("more than " + std::to_string(kMaxContainerDepth) + " containers inside each other");
}

/// Returns the other keys that are equal in Python, such as 1, 1.0 and True.
std::vector<c10::IValue> other_spellings(const c10::IValue& key) {
  constexpr double kLargestWhole = 9e18;
  if (key.isBool()) return {std::int64_t{key.toBool()}, double{key.toBool() ? 1.0 : 0.0}};
  if (key.isInt() && (key.toInt() == 0 || key.toInt() == 1))
    return {key.toInt() == 1, static_cast<double>(key.toInt())};
  if (key.isInt()) return {static_cast<double>(key.toInt())};
  const double real = key.toDouble();
  if (real == 0 || real == 1) return {real == 1, static_cast<std::int64_t>(real)};
  if (std::abs(real) > kLargestWhole || real != std::trunc(real)) return {};
  return {static_cast<std::int64_t>(real)};
}

c10::IValue list_of(std::vector<c10::IValue> parts) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.reserve(parts.size());
  for (c10::IValue& part : parts)
    list.push_back(std::move(part));
  return list;
}

/// Throws Error if the dict has a key that is equal in Python. Such keys are different in
/// LibTorch's dicts, so a pickle with both would have another meaning here than in Python.
void check_key_is_new(const c10::impl::GenericDict& dict, const c10::IValue& key) {
  if (key.isString()) return;
  if (key.isTensor()) {
    if (dict.contains(key)) fail_pickle("a tensor that is a key of one dict twice");
    return;
  }
  for (const c10::IValue& other : other_spellings(key))
    if (dict.contains(other)) fail_pickle("one number as two keys of a dict");
}

}  // namespace

void fail_pickle(const std::string& what) {
  throw Error("its pickle has " + what);
}

PickleValues::PickleValues(const pickle::Graph& graph, MakeTensor make_tensor)
    : graph_(graph), make_tensor_(std::move(make_tensor)), made_(graph.values.size()) {}

const PickleValues::Made& PickleValues::visit(Ref ref) {
  Made& made = made_[ref];
  if (made.step == Made::Step::Done) return made;
  if (made.step == Made::Step::UnderWay) fail_pickle("a container inside of itself");
  made.step = Made::Step::UnderWay;
  made.value = make_value(ref, made.height);
  made.step = Made::Step::Done;
  return made;
}

c10::IValue PickleValues::make_value(Ref ref, int& height) {
  const pickle::Value& from = graph_.at(ref);
  switch (from.kind) {
    case Kind::None:
      return {};
    case Kind::Bool:
      return from.number != 0;
    case Kind::Integer:
      return from.number;
    case Kind::Real:
      return std::bit_cast<double>(from.number);
    case Kind::Text:
      return std::string(from.text);
    case Kind::Tuple:
    case Kind::List:
    case Kind::Dict:
      return make_container(from, height);
    case Kind::Call:
      return make_call(from);
    case Kind::Bytes:
      fail_pickle("bytes, which are not read");
    case Kind::Set:
      fail_pickle("a set");
    case Kind::Class:
      fail_pickle("the name " + pickle::class_name(graph_, ref) + " as a value");
    case Kind::Instance:
      fail_pickle("an object of the class " + pickle::class_name(graph_, from.items[0]));
    case Kind::Persistent:
      fail_pickle("a tensor's storage as a value");
    case Kind::Moved:
      fail_pickle("a list that a set was made of");
  }
  return {};  // Not reached.
}

c10::IValue PickleValues::make_container(const pickle::Value& from, int& height) {
  if (++depth_ > kMaxContainerDepth) fail_deep();
  c10::IValue made;
  if (from.kind == Kind::Dict) {
    made = make_dict(from, height);
  } else {
    std::vector<c10::IValue> parts;
    parts.reserve(from.items.size());
    for (const Ref item : from.items)
      parts.push_back(part(item, height));
    made = from.kind == Kind::Tuple ? c10::IValue(c10::ivalue::Tuple::create(std::move(parts)))
                                    : list_of(std::move(parts));
  }
  if (++height > kMaxContainerDepth) fail_deep();
  --depth_;
  return made;
}

c10::IValue PickleValues::make_dict(const pickle::Value& from, int& height) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (std::size_t i = 0; i < from.items.size(); i += 2) {
    const c10::IValue key = part(from.items[i], height);
    check_key_is_new(dict, key);
    dict.insert_or_assign(key, part(from.items[i + 1], height));
  }
  return dict;
}

c10::IValue PickleValues::make_call(const pickle::Value& from) {
  const TorchName callee = torch_name(graph_, from.items[0]);
  const auto& arguments = graph_.at(from.items[1]).items;
  if (callee == TorchName::RebuildParameter) return visit(arguments[0]).value;
  return make_tensor_(callee, arguments);
}

/// Returns a part of a container. Raises `height` to the height of the part.
c10::IValue PickleValues::part(Ref ref, int& height) {
  const Made& made = visit(ref);
  height = std::max(height, made.height);
  return made.value;
}

}  // namespace muster

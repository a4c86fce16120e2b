// The content of a pickle as inert values: nothing is called, and no Python object is made.
//
// Values refer to each other by number, so that shared and even circular values need no ownership
// and no recursion. Texts are views of the pickle, or of memory that a writer keeps alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::pickle {

/// A value's number in its graph. Two references to one number are one Python object.
using Ref = std::uint32_t;

enum class Kind : std::uint8_t {
  None,
  Bool,        // number
  Integer,     // number
  Real,        // number: the bits of the double
  Text,        // text, UTF-8
  Bytes,       // text
  Tuple,       // items; number: the depth of nested tuples, 1 without any
  List,        // items
  Set,         // items
  Dict,        // items: key, value, key, value … number: 1 if a call made it, or else 0.
  Class,       // items: module, name; both Text. number: the result of Rules::find_name().
  Call,        // items: Class, Tuple: the callee and its arguments (REDUCE).
  Instance,    // items: Class, and after BUILD the Dict of its attributes (NEWOBJ).
  Persistent,  // items: the id (BINPERSID)
  Moved,       // A list whose items were moved into a set. Any further use is refused.
};

/// The numbers of Python's own functions in pickles of the protocols 2 and 3. The numbers of Rules
/// begin at 0.
inline constexpr std::int64_t kBuiltinSet = -1;  // builtins.set
inline constexpr std::int64_t kEncodeText = -2;  // _codecs.encode: how protocol 2 writes bytes.

struct Value {
  Kind kind = Kind::None;
  bool frozen = false;       // A dict that BUILD has copied: later changes are refused.
  std::uint32_t offset = 0;  // The position of the opcode that made the value, for messages.
  std::int64_t number = 0;
  std::string_view text;
  std::vector<Ref> items;
};

struct Graph {
  std::deque<Value> values;       // References to values stay valid when values are added.
  std::deque<std::string> owned;  // Texts that are not in other memory.

  const Value& at(Ref ref) const { return values[ref]; }
  Value& at(Ref ref) { return values[ref]; }
  Ref add(Value value) {
    values.push_back(std::move(value));
    return static_cast<Ref>(values.size() - 1);
  }
  bool is(Ref ref, Kind kind) const { return values[ref].kind == kind; }
  bool is_class(Ref ref, std::int64_t which) const {
    return is(ref, Kind::Class) && values[ref].number == which;
  }
};

}  // namespace muster::pickle

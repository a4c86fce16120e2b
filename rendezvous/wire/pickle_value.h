// What a pickle says, as inert values: nothing is called, nothing is made.
//
// Values refer to each other by number, so that shared and even circular ones need no ownership
// and no recursion. Texts are views: of the pickle that was read, or of what a writer keeps alive.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace muster::pickle {

/// A value's number in its graph. Two references to one number are one Python object.
using Ref = std::uint32_t;

enum class Kind : std::uint8_t {
  None,
  Bool,      // number
  Integer,   // number
  Text,      // text, UTF-8
  Bytes,     // text
  Tuple,     // items
  List,      // items
  Set,       // items
  Dict,      // items: key, value, key, value …
  Class,     // items: module, name; both Text. `number` is the AllowedClass.
  Call,      // items: Class, Tuple. What Python would call, and with what (REDUCE).
  Instance,  // items: Class, and after BUILD the Dict of its attributes (NEWOBJ).
};

/// The only names that a state may contain.
enum class AllowedClass : std::uint8_t {
  State,      // _RendezvousState
  Node,       // _NodeDesc
  Time,       // datetime.datetime
  Zone,       // datetime.timezone
  Delta,      // datetime.timedelta
  Set,        // builtins.set: how protocols 2 and 3 write a set.
  EncodeText  // _codecs.encode: how protocol 2 writes bytes.
};

inline constexpr std::string_view kTorchModule =
    "torch.distributed.elastic.rendezvous.dynamic_rendezvous";

struct Value {
  Kind kind = Kind::None;
  std::uint32_t offset = 0;  // Of the opcode that made it, for messages.
  std::int64_t number = 0;
  std::string_view text;
  std::vector<Ref> items;
};

struct Graph {
  std::deque<Value> values;       // A reference to one stays valid when others are added.
  std::deque<std::string> owned;  // Texts that lie in nobody else's memory.

  const Value& at(Ref ref) const { return values[ref]; }
  Value& at(Ref ref) { return values[ref]; }
  Ref add(Value value) {
    values.push_back(std::move(value));
    return static_cast<Ref>(values.size() - 1);
  }
  bool is(Ref ref, Kind kind) const { return values[ref].kind == kind; }
  bool is_class(Ref ref, AllowedClass which) const {
    return is(ref, Kind::Class) && values[ref].number == static_cast<std::int64_t>(which);
  }
};

}  // namespace muster::pickle

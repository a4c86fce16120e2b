// Reads a pickle without Python: a stack machine over inert values.
//
// The reader follows CPython's C unpickler exactly, or refuses: for an accepted pickle, CPython
// would make the objects of the graph. The reader executes nothing, is not recursive, takes linear
// time, and counts every value and every copied byte against PickleLimits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pickle/result.h"
#include "pickle/value.h"

namespace muster::pickle {

struct PickleLimits {
  std::size_t bytes = std::size_t{8} << 20;  // About 60,000 nodes of a rendezvous state.
  std::size_t values = 1'000'000;            // In the graph.
  std::size_t stack = 100'000;               // A batch of 1000 items needs 2,000.
  std::size_t bytes_per_value = 3;           // At least; torch's states have 7 or more.
  std::int64_t tuple_depth = 1;              // A tuple of plain values has the depth 1.
};

/// The other values that a pickle may contain, besides None, bool, integers, texts, bytes, tuples,
/// lists, sets and dicts. Each check returns the refused thing, such as "a call of os.system";
/// empty: the reader goes on.
class Rules {
 public:
  Rules() = default;
  virtual ~Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;

  struct CallResult {
    std::string refusal = {};
    Kind made = Kind::Call;  // Dict: the call makes an empty dict.
  };

  /// The number of an allowed name, 0 or more.
  virtual std::optional<std::int64_t> find_name(std::string_view module,
                                                std::string_view name) const = 0;
  /// `callee` is a class that find_name() knows, `arguments` a tuple (REDUCE).
  virtual CallResult check_call(const Graph& graph, Ref callee, Ref arguments) const = 0;
  /// `of` is a class that find_name() knows, `arguments` a tuple (NEWOBJ).
  virtual std::string check_object(const Graph& graph, Ref of, Ref arguments) const = 0;
  /// `object` is an instance that has no attributes yet, `attributes` a dict (BUILD).
  virtual std::string check_attributes(const Graph& graph, Ref object, Ref attributes) const = 0;
  /// `id` is the value of a persistent id (BINPERSID).
  virtual std::string check_persistent(const Graph& graph, Ref id) const;
  /// `key` is a key of a dict or an item of a set. Python must be able to use the value as a key at
  /// this point of the pickle, and the value must not change afterwards.
  virtual std::string check_key(const Graph& graph, Ref key) const;

  bool reals = false;                      // Allows BINFLOAT.
  bool drops_attributes_of_dicts = false;  // Ignores BUILD of a dict that a call has made.
};

/// "module.name" of a Class, for messages: at most 80 bytes of each, without control characters.
std::string class_name(const Graph& graph, Ref of);

/// Adds the values of the pickle `bytes` to the graph, and returns the value that is left at STOP.
/// `bytes` must outlive the graph.
PickleResult<Ref> read_pickle(std::string_view bytes, Graph& graph, const Rules& rules,
                              const PickleLimits& limits = {});

}  // namespace muster::pickle

// Reads a pickle without Python: a stack machine over inert values.
//
// The reader follows CPython's C unpickler exactly, or refuses: what it accepts means to CPython
// what the graph says. It executes nothing, calls itself nowhere, takes linear time, and counts
// every value and every copied byte against PickleLimits.
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
  std::size_t bytes_per_value = 3;           // Of the pickle; torch's states have 7 or more.
  std::int64_t tuple_depth = 1;              // A tuple of plain values has the depth 1.
};

/// What a pickle may contain beside None, bool, integers, texts, bytes, tuples, lists, sets and
/// dicts. Each check returns what it refuses, as "a call of os.system"; empty: the reader goes on.
class Rules {
 public:
  Rules() = default;
  virtual ~Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;

  struct CallResult {
    std::string refusal = {};
    Kind made = Kind::Call;  // Or Dict: the call makes an empty dict.
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
  /// `id` is what a persistent id consists of (BINPERSID).
  virtual std::string check_persistent(const Graph& graph, Ref id) const;
  /// `key` of a dict or set: Python must be able to use the value as a key at this point of the
  /// pickle, and the value may not change afterwards.
  virtual std::string check_key(const Graph& graph, Ref key) const;

  bool reals = false;                      // BINFLOAT
  bool drops_attributes_of_dicts = false;  // BUILD of a dict that a call has made.
};

/// "module.name" of a Class for messages: 80 bytes of each, without control characters.
std::string class_name(const Graph& graph, Ref of);

/// Adds the values of `bytes`, which must outlive the graph, and returns the one left at STOP.
PickleResult<Ref> read_pickle(std::string_view bytes, Graph& graph, const Rules& rules,
                              const PickleLimits& limits = {});

}  // namespace muster::pickle

// JSON objects of the native door's messages: parsed within limits, then read field by field.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/messages/native_codec.h"
#include "rendezvous/rounds/limits.h"

namespace muster::native {

using Json = nlohmann::json;

/// Parses `text` into `value`. Returns an error if `text` is not JSON, or has more than
/// kMaxNativeValues values or kMaxNativeDepth levels. The time is proportional to the length of the
/// text.
std::optional<NativeError> parse_json(std::string_view text, Json& value);

/// The fields of one object. The first error is kept; all later reads return defaults.
class Fields {
 public:
  Fields(const Json& object, std::optional<NativeError>& error, std::string path = {})
      : object_(object), error_(error), path_(std::move(path)) {}

  std::string text(const char* name, std::size_t most = kMaxNativeTextBytes);
  bool boolean(const char* name);
  template <typename Number>
  Number number(const char* name, std::int64_t least, std::int64_t most) {
    return static_cast<Number>(integer(name, least, most));
  }
  template <typename Number>
  Number number(const char* name, std::int64_t least = 0) {
    return number<Number>(name, least, std::int64_t{std::numeric_limits<Number>::max()});
  }
  /// The enumerator with this name. `names` are in the order of the enumerators.
  template <typename Enum>
  Enum one_of(const char* name, std::span<const std::string_view> names) {
    return static_cast<Enum>(index_of(name, names));
  }
  /// A field that is an object; an empty object on an error.
  Fields object(const char* name);
  /// Calls `read(Fields)` for each element of a list of at most `most` objects.
  template <typename Read>
  void each(const char* name, std::size_t most, const Read& read) {
    const Json* list = list_of(name, most);
    for (std::size_t i = 0; list != nullptr && i < list->size() && !error_; ++i)
      read(element(name, *list, i));
  }
  /// Whether an optional field is there; null counts as missing.
  bool has(const char* name) const;
  void fail(const char* name, std::string reason);

 private:
  const Json* find(const char* name);
  const Json* list_of(const char* name, std::size_t most);
  Fields element(const char* name, const Json& list, std::size_t index);
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most);
  std::size_t index_of(const char* name, std::span<const std::string_view> names);

  const Json& object_;
  std::optional<NativeError>& error_;
  std::string path_;
};

/// A nonce or a proof.
std::string read_hex(Fields& fields, const char* name);

}  // namespace muster::native

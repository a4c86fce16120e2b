// Messages and records as JSON objects, each described once: the same description writes and reads.
//
//     template <typename V>
//     void fields(V& v, Of<V, WorkersFailed>& failed) {
//       v.number("round", failed.round);
//       v.text("what", failed.what, kMaxWhatBytes);
//       v.optional_flag("hung", failed.hung);
//     }
//
// `v` is a JsonWriter or a JsonReader, which have the same functions. The fields are written in the
// order of the description; the reader accepts any order and ignores unknown fields. An optional
// field is left out while it has no value, or is 0, false or empty; null reads as a missing one.
// Pure. Only codecs include this file.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_field_error.h"
#include "base/time.h"

namespace muster {

/// What a description gets: `T` to read, `const T` to write.
template <typename Visitor, typename T>
using Of = std::conditional_t<Visitor::kReads, T, const T>;

/// The reader refuses a text of more than `most` bytes. The writer cuts a text with `cut`.
struct TextRule {
  constexpr TextRule(std::size_t most_bytes, std::string (*cut_text)(const std::string&) = nullptr)
      : most(most_bytes), cut(cut_text) {}
  std::size_t most;
  std::string (*cut)(const std::string&);
};

/// Appends one JSON object to a text. Thousands of members are recorded at once while all nodes
/// wait, so it makes no JSON values.
class JsonWriter {
 public:
  static constexpr bool kReads = false;
  static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

  enum class Characters { Utf8, Ascii };

  /// Call end() after the last field.
  explicit JsonWriter(std::string& out, Characters characters = Characters::Utf8)
      : out_(out), characters_(characters) {
    out_ += '{';
  }
  void end() { out_ += '}'; }

  /// Whether an optional field is there. A reader looks for it; a writer returns `is_given`.
  bool has(const char* /*name*/, bool is_given) const { return is_given; }
  /// The reader fails if `holds` is false.
  void check(bool /*holds*/, const char* /*name*/, const char* /*reason*/) const {}

  /// Bytes that are not UTF-8 are replaced by a character of three bytes.
  void text(const char* name, const std::string& value, const TextRule& rule);
  void optional_text(const char* name, const std::string& value, const TextRule& rule) {
    if (!value.empty()) text(name, value, rule);
  }
  /// A text of exactly so many hexadecimal digits.
  void hex(const char* name, const std::string& value, std::size_t digits) {
    text(name, value, digits);
  }
  void optional_hex(const char* name, const std::string& value, std::size_t digits) {
    optional_text(name, value, digits);
  }
  /// At most `most` bytes; the writer leaves out further ones.
  void base64(const char* name, const std::string& bytes, std::size_t most);

  void flag(const char* name, bool value) { add(name, value ? "true" : "false"); }
  void optional_flag(const char* name, bool value) {
    if (value) flag(name, true);
  }

  template <std::integral Number>
  void number(const char* name, Number value, std::int64_t /*least*/ = 0,
              std::int64_t /*most*/ = kMax) {
    add(name, std::to_string(value));
  }
  template <std::integral Number>
  void optional_number(const char* name, Number value, std::int64_t /*least*/ = 0,
                       std::int64_t /*most*/ = kMax) {
    if (value != 0) number(name, value);
  }
  template <std::integral Number>
  void optional_number(const char* name, const std::optional<Number>& value,
                       std::int64_t /*least*/ = 0, std::int64_t /*most*/ = kMax) {
    if (value) number(name, *value);
  }
  /// The reader refuses a number outside of -most to most.
  void real(const char* name, double value, double most);
  /// In nanoseconds. The writer raises a lower value to `least`.
  void time(const char* name, Duration value, std::int64_t least = 0,
            std::int64_t /*most*/ = kMax) {
    number(name, std::max(least, std::int64_t{value.count()}));
  }
  void optional_time(const char* name, Duration value) {
    if (value > Duration::zero()) time(name, value);
  }
  void optional_time(const char* name, const std::optional<Duration>& value,
                     std::int64_t /*least*/ = 0, std::int64_t /*most*/ = kMax) {
    if (value) number(name, value->count());
  }
  /// `names` are in the order of the enumerators.
  template <typename Enum>
  void one_of(const char* name, Enum value, std::span<const std::string_view> names) {
    text(name, std::string(names[static_cast<std::size_t>(value)]), std::string::npos);
  }
  template <typename Enum>
  void optional_one_of(const char* name, const std::optional<Enum>& value,
                       std::span<const std::string_view> names) {
    if (value) one_of(name, *value, names);
  }

  /// An object within this one. `describe` gets its visitor.
  template <typename Describe>
  void group(const char* name, const Describe& describe) {
    begin(name);
    JsonWriter inner(out_, characters_);
    describe(inner);
    inner.end();
  }
  /// The same with the description of `value`, which also gets `more`.
  template <typename T, typename... More>
  void object(const char* name, const T& value, const More&... more) {
    group(name, [&](JsonWriter& inner) { fields(inner, value, more...); });
  }
  template <typename T, typename... More>
  void optional_object(const char* name, const std::optional<T>& value, const More&... more) {
    if (value) object(name, *value, more...);
  }
  /// An object, or null.
  template <typename T>
  void object_or_null(const char* name, const std::optional<T>& value) {
    if (value)
      object(name, *value);
    else
      add(name, "null");
  }
  /// A list of at most `most` objects; the writer leaves out further ones. `describe` gets a
  /// visitor and an element.
  template <typename T, typename Describe>
  void each(const char* name, const std::vector<T>& values, std::size_t most,
            const Describe& describe) {
    begin(name);
    for (std::size_t i = 0; i < std::min(values.size(), most); ++i) {
      out_ += i == 0 ? '[' : ',';
      JsonWriter inner(out_, characters_);
      describe(inner, values[i]);
      inner.end();
    }
    out_ += values.empty() || most == 0 ? "[]" : "]";
  }
  /// The same, but no list in place of an empty one, and the writer leaves out nothing.
  template <typename T, typename Describe>
  void optional_each(const char* name, const std::vector<T>& values, std::size_t /*most*/,
                     const Describe& describe) {
    if (!values.empty()) each(name, values, values.size(), describe);
  }

 private:
  void begin(const char* name);
  void add(const char* name, std::string_view json);

  std::string& out_;
  Characters characters_;
  bool is_empty_ = true;
};

/// Reads one JSON object. The first error is kept; what is read after it has no meaning.
class JsonReader {
 public:
  static constexpr bool kReads = true;
  using Json = nlohmann::json;

  JsonReader(const Json& object, std::optional<JsonFieldError>& error, std::string path = {})
      : object_(object), error_(error), path_(std::move(path)) {}

  bool has(const char* name, bool is_given = true) const;
  void check(bool holds, const char* name, const char* reason) {
    if (!holds) fail(name, reason);
  }

  void text(const char* name, std::string& value, const TextRule& rule);
  void optional_text(const char* name, std::string& value, const TextRule& rule) {
    if (has(name)) text(name, value, rule);
  }
  void hex(const char* name, std::string& value, std::size_t digits);
  void optional_hex(const char* name, std::string& value, std::size_t digits) {
    if (has(name)) hex(name, value, digits);
  }
  void base64(const char* name, std::string& bytes, std::size_t most);

  void flag(const char* name, bool& value);
  void optional_flag(const char* name, bool& value) {
    if (has(name)) flag(name, value);
  }

  template <std::integral Number>
  void number(const char* name, Number& value, std::int64_t least, std::int64_t most) {
    value = static_cast<Number>(integer(name, least, most));
  }
  template <std::integral Number>
  void number(const char* name, Number& value, std::int64_t least = 0) {
    number(name, value, least, std::int64_t{std::numeric_limits<Number>::max()});
  }
  template <std::integral Number, typename... Limits>
  void optional_number(const char* name, Number& value, Limits... limits) {
    if (has(name)) number(name, value, limits...);
  }
  template <std::integral Number, typename... Limits>
  void optional_number(const char* name, std::optional<Number>& value, Limits... limits) {
    if (has(name)) number(name, value.emplace(), limits...);
  }
  void real(const char* name, double& value, double most);
  void time(const char* name, Duration& value, std::int64_t least = 0,
            std::int64_t most = JsonWriter::kMax) {
    value = Duration(integer(name, least, most));
  }
  void optional_time(const char* name, Duration& value) {
    if (has(name)) time(name, value);
  }
  void optional_time(const char* name, std::optional<Duration>& value, std::int64_t least = 0,
                     std::int64_t most = JsonWriter::kMax) {
    if (has(name)) time(name, value.emplace(), least, most);
  }
  template <typename Enum>
  void one_of(const char* name, Enum& value, std::span<const std::string_view> names) {
    value = static_cast<Enum>(index_of(name, names));
  }
  template <typename Enum>
  void optional_one_of(const char* name, std::optional<Enum>& value,
                       std::span<const std::string_view> names) {
    if (has(name)) one_of(name, value.emplace(), names);
  }

  template <typename Describe>
  void group(const char* name, const Describe& describe) {
    JsonReader inner = object_at(name);
    describe(inner);
  }
  template <typename T, typename... More>
  void object(const char* name, T& value, const More&... more) {
    group(name, [&](JsonReader& inner) { fields(inner, value, more...); });
  }
  template <typename T, typename... More>
  void optional_object(const char* name, std::optional<T>& value, const More&... more) {
    if (has(name)) object(name, value.emplace(), more...);
  }
  template <typename T>
  void object_or_null(const char* name, std::optional<T>& value) {
    const Json* found = find(name);
    if (found != nullptr && !found->is_null()) object(name, value.emplace());
  }
  template <typename T, typename Describe>
  void each(const char* name, std::vector<T>& values, std::size_t most, const Describe& describe) {
    const Json* list = list_of(name, most);
    for (std::size_t i = 0; list != nullptr && i < list->size() && !error_; ++i) {
      JsonReader inner = element(name, *list, i);
      describe(inner, values.emplace_back());
    }
  }
  template <typename T, typename Describe>
  void optional_each(const char* name, std::vector<T>& values, std::size_t most,
                     const Describe& describe) {
    if (has(name)) each(name, values, most, describe);
  }

 private:
  void fail(const char* name, std::string reason);
  const Json* find(const char* name);
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most);
  std::size_t index_of(const char* name, std::span<const std::string_view> names);
  /// An empty object on an error.
  JsonReader object_at(const char* name);
  /// Null if the field is not a list, or has more than `most` elements.
  const Json* list_of(const char* name, std::size_t most);
  JsonReader element(const char* name, const Json& list, std::size_t index);

  const Json& object_;
  std::optional<JsonFieldError>& error_;
  std::string path_;
};

/// One object as a text.
template <typename T>
std::string fields_text(const T& value,
                        JsonWriter::Characters characters = JsonWriter::Characters::Utf8) {
  std::string text;
  JsonWriter writer(text, characters);
  fields(writer, value);
  writer.end();
  return text;
}

/// Reads `object` into `value`. Returns the first error.
template <typename T>
std::optional<JsonFieldError> read_fields(const nlohmann::json& object, T& value) {
  std::optional<JsonFieldError> error;
  JsonReader reader(object, error);
  fields(reader, value);
  return error;
}

}  // namespace muster

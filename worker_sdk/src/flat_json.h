// A reader for one line of JSON: an object whose members are read by name. Values that are objects
// or arrays stay text.
//
// The SDK has no JSON library: a program that links it may have another version of that library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

class FlatJson {
 public:
  /// Nothing if `line` is not one JSON object, or is nested deeper than 16 levels. The result
  /// refers to `line`.
  static std::optional<FlatJson> parse(std::string_view line);

  /// The text of a member's value, as it stands in the line. If a name stands there twice, the last
  /// one counts.
  std::optional<std::string_view> raw(std::string_view name) const;
  /// The value of a member that is a string.
  std::optional<std::string> text(std::string_view name) const;
  /// The value of a member that is a number.
  std::optional<double> number(std::string_view name) const;

  /// The text of each item, if `value` is a JSON array. Otherwise none.
  static std::vector<std::string_view> items_of(std::string_view value);
  /// The integer that `value` is.
  static std::optional<std::int64_t> integer_in(std::string_view value);

 private:
  std::vector<std::pair<std::string, std::string_view>> members_;
};

}  // namespace muster

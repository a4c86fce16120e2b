// Integers in JSON that another program wrote.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace muster {

/// The value of `json`, if it is an integer from `least` to `most`. `Json` is a type of
/// nlohmann/json. json.get<std::int64_t>() alone would take a number above 2^63 for a negative one,
/// and convert a number like 1e300, which is undefined.
template <typename Integer, typename Json>
std::optional<Integer> integer_within(const Json& json, Integer least, Integer most) {
  static_assert(std::numeric_limits<Integer>::is_integer);
  if (!json.is_number_integer()) return std::nullopt;
  // The parser stores every number that is not negative as unsigned.
  if (json.is_number_unsigned()) {
    const auto number = json.template get<std::uint64_t>();
    if (std::cmp_less(number, least) || std::cmp_greater(number, most)) return std::nullopt;
    return static_cast<Integer>(number);
  }
  const auto number = json.template get<std::int64_t>();
  if (std::cmp_less(number, least) || std::cmp_greater(number, most)) return std::nullopt;
  return static_cast<Integer>(number);
}

/// The value of `json`, if it is an integer that `Integer` can represent.
template <typename Integer, typename Json>
std::optional<Integer> integer_of(const Json& json) {
  return integer_within(json, std::numeric_limits<Integer>::min(),
                        std::numeric_limits<Integer>::max());
}

}  // namespace muster

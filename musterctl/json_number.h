// Numbers in musterd's answers, which may be of any size and kind. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace muster::ctl {

/// A rank, or a number of ranks. Nothing if `value` is no whole number from 0 to 2^30: all ranks of
/// a run are below that.
inline std::optional<int> rank_number(const nlohmann::json& value) {
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < 0 || number > kMostRanks) return std::nullopt;
  return static_cast<int>(number);
}

/// Throws std::out_of_range if `value` is not an integer: get() would convert a number like 1e300,
/// which is undefined.
inline std::int64_t integer(const nlohmann::json& value) {
  if (!value.is_number_integer()) throw std::out_of_range("a number is not an integer");
  return value.get<std::int64_t>();
}

/// Throws std::out_of_range if `value` is not an integer of at least 0.
inline std::size_t count(const nlohmann::json& value) {
  const std::int64_t found = integer(value);
  if (found < 0) throw std::out_of_range("a count is negative");
  return static_cast<std::size_t>(found);
}

}  // namespace muster::ctl

// Numbers in musterd's answers, which may be of any size and kind. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "base/json_integer.h"

namespace muster::ctl {

/// A rank, or a number of ranks. Nothing if `value` is no whole number from 0 to 2^30: all ranks of
/// a run are below that.
inline std::optional<int> rank_number(const nlohmann::json& value) {
  return integer_within(value, 0, 1 << 30);
}

/// Throws std::out_of_range if `value` is not an integer.
inline std::int64_t integer(const nlohmann::json& value) {
  const auto number = integer_of<std::int64_t>(value);
  if (!number) throw std::out_of_range("a number is not an integer, or too large");
  return *number;
}

/// Throws std::out_of_range if `value` is not an integer of at least 0.
inline std::size_t count(const nlohmann::json& value) {
  const std::int64_t found = integer(value);
  if (found < 0) throw std::out_of_range("a count is negative");
  return static_cast<std::size_t>(found);
}

}  // namespace muster::ctl

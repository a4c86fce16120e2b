// Sizes as people write them: 500K, 100M, 2G. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/whole_number.h"

namespace muster {

inline constexpr std::string_view kSizeUnits = "KMG";

/// Takes K, M or G, in upper or lower case, off the end of a text. Returns by how many bits the
/// number in front of it is to be shifted: 0 without a unit.
inline unsigned take_size_unit(std::string_view& text) {
  if (text.empty()) return 0;
  const auto unit = kSizeUnits.find(static_cast<char>(text.back() & ~0x20));
  if (unit == std::string_view::npos) return 0;
  text.remove_suffix(1);
  return 10 * (static_cast<unsigned>(unit) + 1);
}

/// A whole number of bytes, or of KiB, MiB or GiB with K, M or G behind it, as for muster's
/// --log-max-bytes.
inline std::optional<std::uint64_t> parse_size(std::string_view text) {
  const unsigned shift = take_size_unit(text);
  const auto number = whole_number<std::uint64_t>(text);
  if (!number || *number > (std::numeric_limits<std::uint64_t>::max() >> shift))
    return std::nullopt;
  return *number << shift;
}

/// The shortest text of which parse_size() makes this number.
inline std::string short_size(std::uint64_t bytes) {
  std::size_t unit = 0;
  while (unit < kSizeUnits.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + std::string(kSizeUnits.substr(unit == 0 ? 3 : unit - 1, 1));
}

}  // namespace muster

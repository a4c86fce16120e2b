// Whole numbers in texts.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace muster {

/// The number that `text` is, from its first to its last character. No value if `Number` cannot
/// represent it.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace muster

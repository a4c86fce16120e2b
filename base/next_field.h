// Takes a text apart at its separators, field by field.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster {

/// Returns the part of `text` before `separator`, and removes both from `text`. Without a separator
/// that is the whole text.
inline std::string_view next_field(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return part;
}

}  // namespace muster

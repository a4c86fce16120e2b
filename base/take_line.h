// A text, line by line. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace muster {

/// Takes the first line off a text, without its line break. Empty if the text is empty.
inline std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace muster

// Text in lines that fit on a screen. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

/// `text`, broken at blanks into lines of at most `columns`, each after `indent` blanks. A word
/// that is longer gets its own line. Each line has at least 20 columns for words.
inline std::string wrapped_text(std::string_view text, std::size_t indent, std::size_t columns) {
  const std::size_t width = columns > indent + 20 ? columns - indent : 20;
  std::string out;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out.append(indent, ' ').append(line).append("\n");
      line.clear();
    }
    line.append(line.empty() ? "" : " ").append(word);
  }
  return out.append(indent, ' ').append(line).append("\n");
}

}  // namespace muster

// Cuts a text that is shown to people.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

/// Cuts a longer text to at most `most` bytes, which must be at least 3, but not in the middle of a
/// UTF-8 sequence. A text that was cut ends in "...".
inline void cut_text(std::string& text, std::size_t most) {
  if (text.size() <= most) return;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  text.resize(end);
  text += "...";
}

}  // namespace muster

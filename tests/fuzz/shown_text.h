// Checks for the fuzz targets that a text for people cannot control a terminal.
#pragma once

#include <cstdlib>
#include <string_view>

#include "pickle/utf8.h"

namespace muster::testing {

/// Ends the program if `text` has a character that controls a terminal: a control character other
/// than line feed and tab, a line separator, a mark of direction, or bytes that are not UTF-8.
inline void check_shown(std::string_view text) {
  if (!is_utf8(text)) std::abort();
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) std::abort();
    // C1: U+0080 to U+009F.
    if (byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0) std::abort();
    // U+2028 to U+202E.
    if (text.substr(at, 2) == "\xe2\x80" && static_cast<unsigned char>(text[at + 2]) >= 0xa8 &&
        static_cast<unsigned char>(text[at + 2]) <= 0xae)
      std::abort();
  }
}

/// The same for one line, which must not contain a line feed either.
inline void check_shown_line(std::string_view text) {
  check_shown(text);
  if (text.find('\n') != std::string_view::npos) std::abort();
}

}  // namespace muster::testing

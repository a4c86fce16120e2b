// What a text for people must not have in it, for the fuzz targets.
#pragma once

#include <cstdlib>
#include <string_view>

#include "pickle/utf8.h"

namespace muster::testing {

/// Ends the program where `text` has a character that steers a terminal: a control character but
/// line feeds and tabs, a line separator, a mark of direction, or bytes that are no UTF-8.
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

/// The same of one line, which has no line feed in it either.
inline void check_shown_line(std::string_view text) {
  check_shown(text);
  if (text.find('\n') != std::string_view::npos) std::abort();
}

}  // namespace muster::testing

#include "base/printable_text.h"

#include <algorithm>
#include <cstdint>

#include "pickle/utf8.h"

namespace muster {
namespace {

// The length in bytes of the valid UTF-8 character at the beginning of `text`; 0: there is none.
std::size_t character_bytes(std::string_view text) {
  const std::size_t most = std::min<std::size_t>(text.size(), 4);
  for (std::size_t bytes = 1; bytes <= most; ++bytes)
    if (is_utf8(text.substr(0, bytes))) return bytes;
  return 0;
}

// The code point of one valid character.
std::uint32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  std::uint32_t point = lead & (0x7fU >> character.size());
  for (const char c : character.substr(1))
    point = point << 6 | (static_cast<unsigned char>(c) & 0x3fU);
  return point;
}

// Whether the character may control a terminal or a log reader. C1 controls control terminals like
// ESC; Unicode has line separators and direction marks.
bool is_unprintable(std::uint32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x061c ||
         (point >= 0x200b && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
         (point >= 0x2060 && point <= 0x206f) || point == 0xfeff;
}

void append_escaped(std::string_view bytes, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.append("\\x").push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 0xf]);
  }
}

}  // namespace

std::string printable_text(std::string_view text, std::size_t most) {
  std::string out;
  const std::string_view head = text.substr(0, most);
  for (std::size_t at = 0; at < head.size();) {
    // A valid character that the cut divides is written whole.
    const std::size_t bytes = character_bytes(text.substr(at));
    const std::string_view character = text.substr(at, std::max<std::size_t>(bytes, 1));
    if (bytes == 0 || is_unprintable(code_point(character)))
      append_escaped(character, out);
    else if (character == "\"" || character == "\\")
      out.append("\\").append(character);
    else
      out.append(character);
    at += character.size();
  }
  if (text.size() > most) out.append("...");
  return out;
}

std::string terminal_text(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text.substr(at));
    const std::string_view character = text.substr(at, std::max<std::size_t>(bytes, 1));
    const bool stays = character == "\n" || character == "\t";
    if (character == "\r") {
      if (!text.substr(at).starts_with("\r\n")) out.push_back('\n');  // Else it follows.
    } else if (!stays && (bytes == 0 || is_unprintable(code_point(character)))) {
      append_escaped(character, out);
    } else {
      out.append(character);
    }
    at += character.size();
  }
  return out;
}

std::string terminal_line(std::string_view text) {
  std::string out;
  for (const char c : terminal_text(text))
    c == '\n' ? out.append("\\x0a") : out.append(1, c);
  return out;
}

std::size_t cut_character_bytes(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(text.size(), 3); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xc0U) == 0x80) continue;  // Not the first one.
    const std::size_t wanted = byte >= 0xf8   ? 1
                               : byte >= 0xf0 ? 4
                               : byte >= 0xe0 ? 3
                               : byte >= 0xc0 ? 2
                                              : 1;
    return wanted > bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace muster

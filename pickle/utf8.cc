#include "pickle/utf8.h"

#include <cstdint>

namespace muster {
namespace {

std::uint32_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::uint32_t lead = byte_at(text, i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > text.size() - i) return false;
    std::uint32_t point = lead & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte_at(text, i + k) & 0xc0) != 0x80) return false;
      point = point << 6 | (byte_at(text, i + k) & 0x3f);
    }
    const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    const bool surrogate = point >= 0xd800 && point <= 0xdfff;
    if (overlong || surrogate || point > 0x10ffff) return false;
    i += length;
  }
  return true;
}

std::optional<std::string> latin1_of_utf8(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t lead = byte_at(text, i);
    if (lead < 0x80) {
      bytes += static_cast<char>(lead);
      continue;
    }
    if (lead > 0xc3 || i + 1 >= text.size()) return std::nullopt;
    bytes += static_cast<char>((lead & 0x03) << 6 | (byte_at(text, ++i) & 0x3f));
  }
  return bytes;
}

bool is_at_most_one_latin1(std::string_view text) {
  if (text.size() <= 1) return true;
  return text.size() == 2 && byte_at(text, 0) >= 0xc2 && byte_at(text, 0) <= 0xc3;
}

}  // namespace muster

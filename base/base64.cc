#include "base/base64.h"

#include <array>
#include <cstdint>

namespace muster {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNone = 0xff;

constexpr std::array<std::uint8_t, 256> make_values() {
  std::array<std::uint8_t, 256> values{};
  for (auto& value : values)
    value = kNone;
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return values;
}
constexpr auto kValues = make_values();

std::uint32_t byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

}  // namespace

bool is_base64_digit(char c) {
  return kValues[static_cast<unsigned char>(c)] != kNone;
}

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = byte_at(bytes, i) << 16;
    if (count > 1) group |= byte_at(bytes, i + 1) << 8;
    if (count > 2) group |= byte_at(bytes, i + 2);
    for (std::size_t digit = 0; digit < 4; ++digit)
      text += digit <= count ? kAlphabet[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

boost::system::result<std::string, Base64Error> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return Base64Error{text.size()};
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::size_t digits = 4;
    if (i + 4 == text.size())
      while (digits > 2 && text[i + digits - 1] == '=')
        --digits;
    std::uint32_t group = 0;
    for (std::size_t digit = 0; digit < digits; ++digit) {
      const std::uint8_t value = kValues[byte_at(text, i + digit)];
      if (value == kNone) return Base64Error{i + digit};
      group |= static_cast<std::uint32_t>(value) << (18 - 6 * digit);
    }
    for (std::size_t byte = 0; byte + 1 < digits; ++byte)
      bytes += static_cast<char>(group >> (16 - 8 * byte) & 0xff);
    const std::uint32_t stray = digits == 4 ? 0 : digits == 3 ? group & 0xff : group & 0xffff;
    if (stray != 0) return Base64Error{i + digits - 1};
  }
  return bytes;
}

}  // namespace muster

// Text with bytes written as "%2F": in addresses of HTTP and in etcd's keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// `is_plain(char)`: this byte is written as it is. '%' must not be.
template <typename IsPlain>
std::string percent_encode(std::string_view text, IsPlain is_plain) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_plain(c))
      encoded += c;
    else
      (encoded += '%').append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return encoded;
}

/// Nothing if a '%' is not followed by two digits, small or large.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace muster

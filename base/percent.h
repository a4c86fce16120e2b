// Percent-encoding (bytes as "%2F"), for HTTP addresses and keys in etcd.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// `is_plain(char)` returns whether a byte is written as it is; false for '%'.
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

/// Empty if a '%' is not followed by two hexadecimal digits, lowercase or uppercase.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace muster

// Base64 as Python's b64encode writes it: the standard alphabet, padding, no line breaks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

namespace muster {

/// The offset of the first wrong character.
struct Base64Error {
  std::size_t offset = 0;
};

std::string base64_encode(std::string_view bytes);

/// Whether the character is one of the alphabet's 64.
bool is_base64_digit(char c);

/// Accepts only text that base64_encode() can have written: no other characters, no missing
/// padding, no stray bits. Python's own decoder is more lenient. But torch compares whole texts, so
/// no writer can rely on that.
boost::system::result<std::string, Base64Error> base64_decode(std::string_view text);

}  // namespace muster

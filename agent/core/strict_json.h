// Python's json module writes and reads a few things that JSON does not have.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// The same text as JSON: numbers that JSON or a double cannot represent (NaN, Infinity, 1e400)
/// become null, and the escape of half a character ("\udce9": Python's text for a byte of a file
/// name that is not UTF-8) becomes the replacement character. The rest is not changed, even if it
/// is not JSON.
std::string strict_json(std::string_view text);

}  // namespace muster

// UTF-8: whether a text is, and the two conversions that the pickle codec needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// Whether it is what Python's strict decoder takes: no surrogates, nothing overlong.
bool is_utf8(std::string_view text);

/// The code points as bytes; nothing if one is above 255. `text` is valid UTF-8.
std::optional<std::string> latin1_of_utf8(std::string_view text);

/// Whether valid UTF-8 is empty or one code point up to 255: CPython keeps one object of each.
bool is_at_most_one_latin1(std::string_view text);

}  // namespace muster

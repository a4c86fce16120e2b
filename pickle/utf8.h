// UTF-8: a check of a text, and two helpers of the pickle codec.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// Whether Python's strict decoder accepts the text: no surrogates, no overlong sequences.
bool is_utf8(std::string_view text);

/// The code points as bytes; empty if one is above 255. `text` must be valid UTF-8.
std::optional<std::string> latin1_of_utf8(std::string_view text);

/// Whether `text`, which must be valid UTF-8, is empty or one code point up to 255: CPython has
/// only one object for each such text.
bool is_at_most_one_latin1(std::string_view text);

}  // namespace muster

// Numbers and quoted texts as Python reads and writes them, for the command line and for
// --rdzv-conf, which follow Python's rules.
//
// Pure. Unlike in Python, only ASCII digits count, and integers have 64 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// int(text): blanks around it, a sign, underscores between digits. Empty if Python would refuse.
std::optional<std::int64_t> parse_python_int(std::string_view text);
/// float(text): the same rules, and inf, infinity and nan.
std::optional<double> parse_python_float(std::string_view text);
/// repr(text): in quotes, control characters escaped.
std::string python_repr(std::string_view text);
/// text.strip() for ASCII blanks.
std::string_view strip(std::string_view text);
/// text.lower() for ASCII letters.
std::string lower(std::string_view text);
/// text.split(separator): at least one part, which may be empty.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace muster

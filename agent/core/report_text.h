// Formats text from workers for a failure report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

/// The second since the epoch that contains this millisecond.
std::int64_t floor_s(std::int64_t ms);

/// The width of the widest line in characters, like Python's len(): continuation bytes of UTF-8 do
/// not count.
std::size_t widest_line(std::string_view text);

/// Indents every line but the first by two spaces.
std::string indented(std::string_view text);

/// The lines as a terminal would show them in the end, each with a newline before it. Control
/// characters are replaced, so that the text cannot control the terminal.
std::string presentable(std::string_view tail);

/// The text without the "[rank3]: " that torch puts before each line of a traceback: what differs
/// between two ranks that failed in the same way.
std::string without_rank_prefixes(std::string_view text);

/// The text with its last line that is not empty in bold red, for a terminal.
std::string with_red_last_line(std::string_view text);

/// The text without the lines of C++ stacks with which torch's messages end ("frame #3: ..."):
/// their cause stands above them.
std::string without_frames(std::string_view text);

}  // namespace muster

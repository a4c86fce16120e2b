// Text from outside, made safe for a line of a log or for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

/// A text from outside in one line of the log.
inline constexpr std::size_t kMaxLoggedTextBytes = 512;

/// `text` for a quoted text in a line of a log: control characters, line separators, characters
/// that change the direction of writing, and bytes that are not UTF-8 become \xHH; a quote and a
/// backslash get a backslash in front. A text of more than `most` bytes is cut and ends in "...".
std::string printable_text(std::string_view text, std::size_t most = kMaxLoggedTextBytes);

/// `text` of any length for a terminal: bytes that printable_text() escapes become \xHH, but line
/// feeds, tabs, quotes and backslashes stay. A carriage return becomes a line feed.
std::string terminal_text(std::string_view text);

/// As terminal_text(), for one line: line feeds become \x0a.
std::string terminal_line(std::string_view text);

/// The number of bytes at the end of `text` that begin a character whose other bytes may follow.
std::size_t cut_character_bytes(std::string_view text);

}  // namespace muster

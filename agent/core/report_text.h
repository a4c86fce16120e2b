// How times and other people's text look in a failure report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

/// The second that this millisecond since the epoch is in.
std::int64_t floor_s(std::int64_t ms);

/// "2026-11-21_09:08:26" with '_', "2026-11-21T09:08:26" with 'T'.
std::string date_time(std::int64_t second, char separator);

/// In characters, as Python's len(): bytes that continue a UTF-8 character do not count.
std::size_t widest_line(std::string_view text);

/// Every line but the first by two spaces.
std::string indented(std::string_view text);

/// The lines as a terminal would have left them, and nothing that could command the terminal; a
/// newline before each.
std::string presentable(std::string_view tail);

}  // namespace muster

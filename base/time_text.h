// Times of the wall clock as text.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace muster {

/// A second since 1970: "2026-11-21_09:08:26" with '_', "2026-11-21T09:08:26" with 'T'.
std::string date_time(std::int64_t second, char separator);

/// "2026-11-22T21:39:01.123Z".
std::string utc_text(std::chrono::microseconds since_1970);

}  // namespace muster

#include "base/time_text.h"

#include <cstdio>

namespace muster {

std::string date_time(std::int64_t second, char separator) {
  const std::chrono::sys_seconds time{std::chrono::seconds(second)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u%c%02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), separator,
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

std::string utc_text(std::chrono::microseconds since_1970) {
  const auto second = std::chrono::floor<std::chrono::seconds>(since_1970);
  const auto rest = std::chrono::floor<std::chrono::milliseconds>(since_1970 - second);
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03dZ", static_cast<int>(rest.count()));
  return date_time(second.count(), 'T') + fraction;
}

}  // namespace muster

#include "notice_lines.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace muster {

namespace {

constexpr double kMostSeconds = 1e9;  // More than a machine is up; fits the clock.

/// The value of a number in a line that is a flat JSON object; the agent writes no others.
std::optional<double> number_of(std::string_view line, std::string_view quoted_name) {
  const std::size_t key = line.find(quoted_name);
  if (key == std::string_view::npos) return std::nullopt;
  line.remove_prefix(key + quoted_name.size());
  const std::size_t colon = line.find_first_not_of(" \t");
  if (colon == std::string_view::npos || line[colon] != ':') return std::nullopt;
  line.remove_prefix(colon + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  // Not strtod: in some languages a program that calls setlocale() gets a comma for the point.
  double value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

bool NoticeLines::add(std::string_view bytes) {
  buffer_.append(bytes);
  std::size_t begin = 0;
  for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
    if (end - begin > kMaxLineBytes) return false;
    take_line(std::string_view(buffer_).substr(begin, end - begin));
    begin = end + 1;
  }
  buffer_.erase(0, begin);
  return buffer_.size() <= kMaxLineBytes;
}

void NoticeLines::take_line(std::string_view line) {
  // Not deadline_s, which counts from when it was sent: nobody knows when that was.
  const auto seconds = number_of(line, "\"deadline_monotonic_s\"");
  // What is not a number fails both comparisons. Other lines are of a later version.
  if (!seconds || !(*seconds >= 0 && *seconds <= kMostSeconds) ||
      line.find("\"preempt\"") == std::string_view::npos)
    return;
  deadline_ = Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds)));
}

}  // namespace muster

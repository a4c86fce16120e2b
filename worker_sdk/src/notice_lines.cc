#include "notice_lines.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace muster {

namespace {

constexpr double kMaxSeconds = 1e9;  // Longer than the uptime of any machine. Fits the clock.

/// Returns the value of a number in a line. The line is a flat JSON object, as the agent writes it.
std::optional<double> number_of(std::string_view line, std::string_view quoted_name) {
  const std::size_t key = line.find(quoted_name);
  if (key == std::string_view::npos) return std::nullopt;
  line.remove_prefix(key + quoted_name.size());
  const std::size_t colon = line.find_first_not_of(" \t");
  if (colon == std::string_view::npos || line[colon] != ':') return std::nullopt;
  line.remove_prefix(colon + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  // from_chars and not strtod: after setlocale(), strtod expects a comma in some languages.
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
    handle_line(std::string_view(buffer_).substr(begin, end - begin));
    begin = end + 1;
  }
  buffer_.erase(0, begin);
  return buffer_.size() <= kMaxLineBytes;
}

void NoticeLines::handle_line(std::string_view line) {
  // deadline_s is not used: it counts from the time when the line was sent, which is not known
  // here.
  const auto seconds = number_of(line, "\"deadline_monotonic_s\"");
  // NaN fails both comparisons. Other types of lines are from later versions and are skipped.
  if (!seconds || !(*seconds >= 0 && *seconds <= kMaxSeconds) ||
      line.find("\"preempt\"") == std::string_view::npos)
    return;
  deadline_ = Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds)));
}

}  // namespace muster

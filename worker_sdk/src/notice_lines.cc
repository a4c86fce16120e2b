#include "notice_lines.h"

#include "flat_json.h"

namespace muster {

namespace {

constexpr double kMaxSeconds = 1e9;  // Longer than the uptime of any machine. Fits the clock.

/// [[first, last], …]. Anything else gives no ranges.
std::vector<std::pair<int, int>> ranges_in(std::string_view text) {
  std::vector<std::pair<int, int>> ranges;
  for (const std::string_view item : FlatJson::items_of(text)) {
    const auto ends = FlatJson::items_of(item);
    if (ends.size() != 2) return {};
    const auto first = FlatJson::integer_in(ends[0]);
    const auto last = FlatJson::integer_in(ends[1]);
    if (!first || !last || *first < 0 || *last < *first || *last > INT32_MAX) return {};
    ranges.emplace_back(static_cast<int>(*first), static_cast<int>(*last));
  }
  return ranges;
}

std::optional<AgentNotice> notice_in(std::string_view line) {
  const auto message = FlatJson::parse(line);
  if (!message || message->text("type") != "preempt") return std::nullopt;
  // deadline_s is not used: it counts from the time when the line was sent, which is not known
  // here.
  const auto seconds = message->number("deadline_monotonic_s");
  if (!seconds || !(*seconds >= 0 && *seconds <= kMaxSeconds)) return std::nullopt;
  AgentNotice notice;
  notice.deadline =
      NoticeLines::Clock::time_point(std::chrono::duration_cast<NoticeLines::Clock::duration>(
          std::chrono::duration<double>(*seconds)));
  notice.reason = message->text("reason").value_or("");
  notice.doomed = message->raw("doomed") != "false";
  if (const auto ranks = message->raw("doomed_ranks")) notice.doomed_ranks = ranges_in(*ranks);
  notice.follow = message->text("follow").value_or("");
  if (const auto id = message->raw("id")) notice.id = FlatJson::integer_in(*id).value_or(0);
  return notice;
}

}  // namespace

bool NoticeLines::add(std::string_view bytes) {
  buffer_.append(bytes);
  std::size_t begin = 0;
  for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
    if (end - begin > kMaxLineBytes) return false;
    if (auto notice = notice_in(std::string_view(buffer_).substr(begin, end - begin)))
      notice_ = std::move(notice);
    begin = end + 1;
  }
  buffer_.erase(0, begin);
  return buffer_.size() <= kMaxLineBytes;
}

}  // namespace muster

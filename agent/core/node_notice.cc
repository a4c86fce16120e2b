#include "agent/core/node_notice.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "base/printable_text.h"

namespace muster {

namespace {

constexpr std::string_view kSpaces = " \t\r";
constexpr std::size_t kShownBytes = 100;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

std::optional<NodeGoes> read_notice_line(std::string_view line) {
  line = trimmed(line);
  const std::string_view word = line.substr(0, line.find_first_of(kSpaces));
  double seconds = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), seconds);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  const double most = std::chrono::duration<double>(kMaxNoticeTime).count();
  // NaN fails both comparisons.
  if (!(seconds >= 0 && seconds <= most)) return std::nullopt;
  return NodeGoes{std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)),
                  std::string(trimmed(line.substr(word.size())))};
}

void NoticeProgramLines::add(std::string_view bytes) {
  if (skips_) {
    const std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    skips_ = false;
  }
  buffer_.append(bytes);
}

void NoticeProgramLines::end() {
  if (!buffer_.empty()) buffer_ += '\n';
}

std::optional<NoticeProgramLines::Found> NoticeProgramLines::next() {
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end == std::string::npos) {
      if (buffer_.size() <= kMaxLineBytes) return std::nullopt;
      // The begin of the line is shown, and its rest is skipped.
      const std::string line = std::exchange(buffer_, {});
      skips_ = true;
      if (auto found = read(line)) return found;
      continue;
    }
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (auto found = read(line)) return found;
  }
}

std::optional<NoticeProgramLines::Found> NoticeProgramLines::read(std::string_view line) {
  if (trimmed(line).empty()) return std::nullopt;
  if (line.size() <= kMaxLineBytes)
    if (auto notice = read_notice_line(line)) return Found{std::move(notice), {}};
  if (++problems_ > kMaxProblems) return std::nullopt;
  return Found{std::nullopt,
               "its line \"" + printable_text(line, kShownBytes) +
                   "\" is no notice: expected SECONDS or SECONDS REASON, at most 604800 s" +
                   (problems_ == kMaxProblems ? "; further such lines are not shown" : "")};
}

Duration pause_before_restart(int failures) {
  constexpr int kMaxDoublings = 6;
  const auto pause = std::chrono::seconds(1) * (1 << std::min(failures - 1, kMaxDoublings));
  return std::min<Duration>(pause, std::chrono::minutes(1));
}

}  // namespace muster

#include "agent/core/progress_mark.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace muster {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::optional<std::int64_t> number_of(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

const std::optional<Progressed>& ProgressMark::read(std::optional<std::string> content) {
  // A script may write the file anew: it is empty, or missing, for a moment.
  if (!content || content->empty() || content == last_) return made_;
  made_ = Progressed{number_of(*content)};
  last_ = std::move(content);
  return made_;
}

}  // namespace muster

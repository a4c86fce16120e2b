#include "agent/core/worker_notice.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/printable_text.h"

namespace muster {

namespace {

const char* name_of(AfterNotice follow) {
  switch (follow) {
    case AfterNotice::Stop:
      return "stop";
    case AfterNotice::Shrink:
      return "shrink";
    case AfterNotice::Restart:
      return "restart";
  }
  return "";
}

/// As a JSON string. Cut at the end of a character, so that it stays valid UTF-8.
std::string quoted(std::string text) {
  if (text.size() > WorkerNotice::kMaxReasonBytes) {
    text.resize(WorkerNotice::kMaxReasonBytes);
    text.resize(text.size() - cut_character_bytes(text));
  }
  return nlohmann::json(std::move(text))
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string ranges_text(const std::vector<std::pair<int, int>>& ranges) {
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(ranges.size(), WorkerNotice::kMaxDoomedRanges); ++i) {
    const auto& [first, last] = ranges[i];
    text += (i == 0 ? "[" : ",[") + std::to_string(first) + "," + std::to_string(last) + "]";
  }
  return text + "]";
}

}  // namespace

std::string preempt_line(const WorkerNotice& notice, Instant now) {
  // Rounded down: no worker may believe that it has more time than it has.
  const auto milliseconds = [](Duration time) {
    return static_cast<long long>(
        std::chrono::floor<std::chrono::milliseconds>(std::max(Duration{}, time)).count());
  };
  const long long left = milliseconds(notice.deadline - now);
  // Both sides use the same clock, so this value stays correct however late the line is read.
  const long long then = milliseconds(notice.deadline.time_since_epoch());
  std::array<char, 128> times{};
  std::snprintf(times.data(), times.size(),
                "\"deadline_s\":%lld.%03lld,\"deadline_monotonic_s\":%lld.%03lld", left / 1000,
                left % 1000, then / 1000, then % 1000);
  std::string line = std::string("{\"type\":\"preempt\",") + times.data();
  line += ",\"id\":" + std::to_string(notice.id);
  line += ",\"reason\":" + quoted(notice.reason);
  line += std::string(",\"doomed\":") + (notice.doomed ? "true" : "false");
  if (!notice.doomed_ranks.empty()) line += ",\"doomed_ranks\":" + ranges_text(notice.doomed_ranks);
  line += std::string(",\"follow\":\"") + name_of(notice.follow) + "\"}\n";
  return line;
}

}  // namespace muster

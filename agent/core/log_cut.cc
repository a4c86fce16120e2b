#include "agent/core/log_cut.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace muster {
namespace {

constexpr std::int64_t kQuarters = 4;
// If the reader that shows the file lags behind, only little can be removed. A cut below this
// fraction of the limit is not worth moving the rest.
constexpr std::int64_t kWorthwhileParts = 8;
// A cut moves all bytes behind it. Each removed byte pays for at most this number of moved bytes,
// so that all moves together stay in proportion to what is written, however far the reader lags
// behind.
constexpr std::int64_t kMovedPerRemoved = 4;

bool pays_for_move(const LogRange& range, std::int64_t size) {
  return range.length >= (size - range.end()) / kMovedPerRemoved;
}

}  // namespace

std::string removal_marker(std::int64_t removed_bytes) {
  char text[96];
  std::snprintf(text, sizeof text, "\n[muster: %16lld bytes were removed here]\n",
                static_cast<long long>(removed_bytes));
  return text;
}

LogCut::LogCut(std::int64_t max_bytes) : max_(max_bytes) {
  MUSTER_CHECK(max_ == 0 || max_ >= kMinLogLimitBytes);
}

std::optional<LogRange> LogCut::over_limit(std::int64_t size, std::int64_t read_to) const {
  if (max_ == 0 || size <= max_) return std::nullopt;
  const std::int64_t from = head_end_ > 0 ? head_end_ : max_ / kQuarters;
  const std::int64_t to = std::min(size - max_ / kQuarters, read_to);
  const LogRange range{from, to - from};
  if (range.length < max_ / kWorthwhileParts || !pays_for_move(range, size)) return std::nullopt;
  return range;
}

std::optional<LogRange> LogCut::for_space(std::int64_t size, std::int64_t read_to) const {
  const std::int64_t from = head_end_ > 0 ? head_end_ : std::max(kMinCutBytes, size / kQuarters);
  const std::int64_t tail = std::max(kMinCutBytes, (size - from) / kQuarters);
  const std::int64_t to = std::min(size - tail, read_to);
  const LogRange range{from, to - from};
  if (range.length < kMinCutBytes || !pays_for_move(range, size)) return std::nullopt;
  return range;
}

void LogCut::removed(const LogRange& range) {
  if (head_end_ == 0) {
    head_end_ = range.offset;
    removed_ = marker_place().length;
  }
  MUSTER_CHECK(range.offset == head_end_ && range.length > 0);
  removed_ += range.length;
}

LogRange LogCut::marker_place() const {
  const auto length = static_cast<std::int64_t>(removal_marker(0).size());
  return {head_end_ - length, length};
}

std::int64_t LogCut::position_of(std::int64_t offset) const {
  return removed_ == 0 || offset < marker_place().offset ? offset : offset + shift();
}

LogRange LogCut::readable(std::int64_t position, std::int64_t size) const {
  if (removed_ > 0) {
    const LogRange marker = marker_place();
    const std::int64_t head_end = std::min(marker.offset, size);
    if (position < head_end) return {position, head_end - position};
    position -= shift();
    if (position < marker.end()) position = marker.offset;
  }
  const std::int64_t offset = std::clamp<std::int64_t>(position, 0, size);
  return {offset, size - offset};
}

}  // namespace muster

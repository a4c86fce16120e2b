#include "agent/core/log_room.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "rendezvous/core/check.h"

namespace muster {
namespace {

constexpr std::int64_t kQuarters = 4;
// A follower that lags behind leaves little to cut: not worth moving the rest for less.
constexpr std::int64_t kWorthwhileParts = 8;
// How many times what came between two looks is to be free behind the end.
constexpr std::int64_t kLooksAhead = 10;

}  // namespace

std::string removal_marker(std::int64_t removed_bytes) {
  char text[96];
  std::snprintf(text, sizeof text, "\n[muster: %16lld bytes were removed here]\n",
                static_cast<long long>(removed_bytes));
  return text;
}

LogRoom::LogRoom(Options options)
    : max_(options.max_bytes), block_(options.block_bytes), reserved_to_(options.reserved_to) {
  MUSTER_CHECK(block_ > static_cast<std::int64_t>(removal_marker(0).size()));
  MUSTER_CHECK(max_ == 0 || max_ >= kMinLogLimitBytes);
}

std::optional<LogRange> LogRoom::cut_over_limit(std::int64_t size, std::int64_t read_to) const {
  if (max_ == 0 || size - (hole_end_ - head_end_) <= max_) return std::nullopt;
  const std::int64_t from = has_cut() ? hole_end_ : std::max(block_, aligned(max_ / kQuarters));
  const std::int64_t to = aligned(std::min(size - max_ / kQuarters, read_to));
  if (to - from < std::max(block_, max_ / kWorthwhileParts)) return std::nullopt;
  return LogRange{from, to - from};
}

std::optional<LogRange> LogRoom::cut_for_space(std::int64_t size, std::int64_t read_to) const {
  const std::int64_t from = has_cut() ? hole_end_ : std::max(block_, aligned(size / kQuarters));
  const std::int64_t tail = std::max(block_, (size - from) / kQuarters);
  const std::int64_t to = aligned(std::min(size - tail, read_to));
  if (to - from < block_) return std::nullopt;
  return LogRange{from, to - from};
}

void LogRoom::remember(const LogRange& cut) {
  if (!has_cut()) {
    head_end_ = hole_end_ = cut.offset;
    removed_ = marker_place().length;
  }
  MUSTER_CHECK(cut.offset == hole_end_ && cut.length > 0);
  removed_ += cut.length;
}

void LogRoom::collapsed(const LogRange& cut) {
  remember(cut);
  reserved_to_ -= cut.length;
  last_size_ -= cut.length;
}

void LogRoom::punched(const LogRange& cut) {
  remember(cut);
  hole_end_ = cut.end();
}

LogRange LogRoom::marker_place() const {
  const auto length = static_cast<std::int64_t>(removal_marker(0).size());
  return {head_end_ - length, length};
}

void LogRoom::seen(std::int64_t size) {
  if (size < last_size_) {  // Truncated by its worker: what was reserved went with it.
    reserved_to_ = size;
    if (size < hole_end_) head_end_ = hole_end_ = removed_ = 0;
  } else {
    reserve_ = std::clamp((size - last_size_) * kLooksAhead, reserve_, kMaxReserveBytes);
  }
  last_size_ = size;
}

std::optional<LogRange> LogRoom::to_reserve() const {
  if (reserved_to_ - last_size_ >= reserve_ / 2) return std::nullopt;
  const std::int64_t from = std::max(last_size_, reserved_to_);
  return LogRange{from, last_size_ + reserve_ - from};
}

void LogRoom::reserved(const LogRange& range) {
  reserved_to_ = std::max(reserved_to_, range.end());
}

}  // namespace muster

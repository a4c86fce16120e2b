#include "agent/core/log_cut.h"

#include <algorithm>
#include <limits>

#include <catch2/catch.hpp>

namespace muster {
namespace {

constexpr std::int64_t kLimit = 4 * kMinLogLimitBytes;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

TEST_CASE("log cut: the marker has a fixed length and names the number of bytes", "[unit][logs]") {
  CHECK(removal_marker(0).size() == removal_marker(std::int64_t{1} << 50).size());
  CHECK(removal_marker(12345).find(" 12345 bytes were removed here]\n") != std::string::npos);
}

TEST_CASE("log cut: a file at its limit is not cut", "[unit][logs]") {
  CHECK_FALSE(LogCut(kLimit).over_limit(kLimit, kAll));
  CHECK_FALSE(LogCut(0).over_limit(kAll, kAll));
}

TEST_CASE("log cut: above the limit the middle is removed, and the first and last quarter stay",
          "[unit][logs]") {
  CHECK(LogCut(kLimit).over_limit(kLimit + 1, kAll) == LogRange{kLimit / 4, kLimit / 2 + 1});
}

TEST_CASE("log cut: bytes that are not shown yet are not removed", "[unit][logs]") {
  const auto cut = LogCut(kLimit).over_limit(kLimit * 3, kLimit + 17);
  REQUIRE(cut);
  CHECK(cut->end() == kLimit + 17);
  CHECK_FALSE(LogCut(kLimit).over_limit(kLimit * 10, 0));
  // A small cut is not worth the work.
  CHECK_FALSE(LogCut(kLimit).over_limit(kLimit * 10, kLimit / 4 + 4096));
}

TEST_CASE("log cut: a cut moves at most four bytes for each that it removes", "[unit][logs]") {
  const std::int64_t size = kLimit * 10;
  // A fifth of what is behind the head is removed, and four fifths are moved.
  const std::int64_t over_limit = kLimit / 4 + (size - kLimit / 4) / 5;
  CHECK(LogCut(kLimit).over_limit(size, over_limit + 1));
  CHECK_FALSE(LogCut(kLimit).over_limit(size, over_limit - 4));
  const std::int64_t for_space = size / 4 + size * 3 / 4 / 5;
  CHECK(LogCut(kLimit).for_space(size, for_space + 1));
  CHECK_FALSE(LogCut(kLimit).for_space(size, for_space - 4));
  // All has been shown, or counts as shown because there is no other room.
  CHECK(LogCut(kLimit).over_limit(size, size));
  CHECK(LogCut(kLimit).for_space(size, size));
}

TEST_CASE("log cut: a reader that lags far behind does not multiply the writes", "[unit][logs]") {
  LogCut log(kLimit);
  std::int64_t size = 0;
  std::int64_t read_to = 0;
  std::int64_t written = 0;
  std::int64_t moved = 0;
  const auto step = [&](std::int64_t more, std::int64_t shown) {
    size += more;
    written += more;
    read_to = std::min(size, read_to + shown);
    if (const auto cut = log.over_limit(size, read_to)) {
      moved += size - cut->end();
      log.removed(*cut);
      size -= cut->length;
      read_to -= cut->length;
    }
    CHECK(size <= kLimit + (size - read_to) * 5 / 4);
  };
  for (int i = 0; i < 2000; ++i)  // The backlog grows to 400 times the limit.
    step(kLimit / 4, kLimit / 20);
  CHECK(size - read_to == 2000 * (kLimit / 4 - kLimit / 20));
  for (int i = 0; i < 10'000; ++i)  // Then it shrinks slowly.
    step(kLimit / 100, kLimit / 20);
  CHECK(moved <= 4 * written);
  CHECK(size <= kLimit);
}

TEST_CASE("log cut: after many cuts the size is still within the limit", "[unit][logs]") {
  LogCut log(kLimit);
  std::int64_t size = 0;
  std::int64_t written = 0;
  for (int i = 0; i < 10'000; ++i) {
    size += 1000;
    written += 1000;
    const auto cut = log.over_limit(size, size);
    if (!cut) continue;
    log.removed(*cut);
    size -= cut->length;
    CHECK(log.marker_place().end() == kLimit / 4);
    CHECK(size + log.removed_bytes() - log.marker_place().length == written);
  }
  CHECK(size <= kLimit);
  CHECK(size >= kLimit / 2);
}

TEST_CASE("log cut: on a full disk most of the middle is removed, also below the limit",
          "[unit][logs]") {
  LogCut log(kLimit);
  CHECK_FALSE(log.for_space(kMinCutBytes * 2, kAll));
  const auto cut = log.for_space(kMinCutBytes * 32, kAll);
  CHECK(cut == LogRange{kMinCutBytes * 8, kMinCutBytes * 18});
  log.removed(*cut);
  // From now on, over_limit() also uses this smaller head.
  const auto next = log.over_limit(kLimit + 1, kAll);
  REQUIRE(next);
  CHECK(next->offset == kMinCutBytes * 8);
}

TEST_CASE("log cut: a reader's position stays right over all cuts", "[unit][logs]") {
  const auto marker_bytes = static_cast<std::int64_t>(removal_marker(0).size());
  LogCut log(kLimit);
  CHECK(log.readable(100, 1000) == LogRange{100, 900});
  CHECK(log.position_of(1000) == 1000);
  std::int64_t written = kLimit + 1000;
  std::int64_t size = written;
  for (int i = 0; i < 3; ++i) {
    const auto cut = log.over_limit(size, kAll);
    REQUIRE(cut);
    log.removed(*cut);
    size -= cut->length;
    const std::int64_t head = kLimit / 4;
    const std::int64_t marker = head - marker_bytes;
    // The end of the file has the position of all bytes that were ever written.
    CHECK(log.position_of(size) == written);
    CHECK(log.readable(written, size) == LogRange{size, 0});
    CHECK(log.readable(written - 10, size) == LogRange{size - 10, 10});
    // The first byte below the marker is the first one that was not removed.
    CHECK(log.readable(log.position_of(head), size) == LogRange{head, size - head});
    // A piece of the head ends at the marker. What follows it begins with the marker.
    CHECK(log.readable(0, size) == LogRange{0, marker});
    CHECK(log.readable(marker - 1, size) == LogRange{marker - 1, 1});
    for (const std::int64_t removed : {marker, head, head + 1000, log.position_of(head) - 1}) {
      INFO(removed);
      CHECK(log.readable(removed, size) == LogRange{marker, size - marker});
    }
    CHECK(log.position_of(marker) + marker_bytes == log.position_of(head));
    // A position behind the end waits there.
    CHECK(log.readable(written + 5, size) == LogRange{size, 0});
    written += kLimit;
    size += kLimit;
  }
}

TEST_CASE("log cut: a reader of a truncated log continues at its new end", "[unit][logs]") {
  LogCut log(kLimit);
  log.removed(*log.over_limit(kLimit * 2, kAll));
  for (const std::int64_t size : {std::int64_t{0}, kLimit / 8}) {
    const LogRange rest = log.readable(kLimit * 2, size);
    CHECK(rest == LogRange{size, 0});
    CHECK(log.position_of(rest.offset) == size);
    CHECK(log.readable(0, size) == LogRange{0, size});
  }
}

TEST_CASE("log cut: a truncated log is treated as a new file", "[unit][logs]") {
  LogCut log(kLimit);
  log.removed(*log.over_limit(kLimit * 2, kAll));
  log.reset();
  CHECK(log.removed_bytes() == 0);
  CHECK(log.over_limit(kLimit + 1, kAll) == LogRange{kLimit / 4, kLimit / 2 + 1});
}

}  // namespace
}  // namespace muster

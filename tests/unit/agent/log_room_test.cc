#include "agent/core/log_room.h"

#include <limits>

#include <catch2/catch.hpp>

namespace muster {
namespace {

constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kLimit = 64 * kBlock;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

LogRoom limited() {
  return LogRoom({.max_bytes = kLimit, .block_bytes = kBlock});
}

TEST_CASE("log room: the marker has one length and says the number", "[unit][logs]") {
  CHECK(removal_marker(0).size() == removal_marker(std::int64_t{1} << 50).size());
  CHECK(removal_marker(12345).find(" 12345 bytes were removed here]\n") != std::string::npos);
}

TEST_CASE("log room: a file at its limit is left alone", "[unit][logs]") {
  CHECK_FALSE(limited().cut_over_limit(kLimit, kAll));
  CHECK_FALSE(LogRoom({}).cut_over_limit(kAll, kAll));
}

TEST_CASE("log room: above it the middle goes, the first and last quarter stay", "[unit][logs]") {
  const auto cut = limited().cut_over_limit(kLimit + 1, kAll);
  REQUIRE(cut);
  CHECK(cut->offset == kLimit / 4);
  CHECK(cut->end() % kBlock == 0);
  CHECK(cut->end() <= kLimit + 1 - kLimit / 4);
  CHECK(cut->end() > kLimit + 1 - kLimit / 4 - kBlock);
}

TEST_CASE("log room: what is not shown yet is not cut", "[unit][logs]") {
  const auto cut = limited().cut_over_limit(kLimit * 10, kLimit + 17);
  REQUIRE(cut);
  CHECK(cut->end() == kLimit);
  CHECK_FALSE(limited().cut_over_limit(kLimit * 10, 0));
  // A little is not worth the work.
  CHECK_FALSE(limited().cut_over_limit(kLimit * 10, kLimit / 4 + kBlock));
}

TEST_CASE("log room: collapsed again and again, the size stays within the limit", "[unit][logs]") {
  LogRoom room = limited();
  std::int64_t size = 0;
  std::int64_t written = 0;
  for (int i = 0; i < 10'000; ++i) {
    size += 1000;
    written += 1000;
    const auto cut = room.cut_over_limit(size, size);
    if (!cut) continue;
    room.collapsed(*cut);
    size -= cut->length;
    CHECK(room.marker_place().end() == kLimit / 4);
    CHECK(size + room.removed_bytes() - room.marker_place().length == written);
  }
  CHECK(size <= kLimit);
  CHECK(size >= kLimit / 2);
}

TEST_CASE("log room: holes grow to one, and what is around them stays within the limit",
          "[unit][logs]") {
  LogRoom room = limited();
  std::int64_t hole_end = 0;
  for (std::int64_t size = 0; size < kLimit * 40; size += 1000) {
    const auto cut = room.cut_over_limit(size, size);
    if (!cut) continue;
    if (hole_end != 0) CHECK(cut->offset == hole_end);
    room.punched(*cut);
    hole_end = cut->end();
    CHECK(size - (hole_end - kLimit / 4) <= kLimit);
  }
  CHECK(room.removed_bytes() == hole_end - kLimit / 4 + room.marker_place().length);
}

TEST_CASE("log room: a full disk takes most of the middle, also below the limit", "[unit][logs]") {
  LogRoom room = limited();
  CHECK_FALSE(room.cut_for_space(kBlock * 2, kAll));
  const auto cut = room.cut_for_space(kBlock * 32, kAll);
  REQUIRE(cut);
  CHECK(*cut == LogRange{kBlock * 8, kBlock * 18});
  room.collapsed(*cut);
  // The limit's head is the smaller one from now on.
  const auto next = room.cut_over_limit(kLimit + kBlock, kAll);
  REQUIRE(next);
  CHECK(next->offset == kBlock * 8);
}

TEST_CASE("log room: the reserve is ten times what comes between two looks", "[unit][logs]") {
  LogRoom room({.reserved_to = kMinReserveBytes});
  room.seen(0);
  CHECK_FALSE(room.to_reserve());
  room.seen(1000);
  CHECK_FALSE(room.to_reserve());
  room.seen(1000 + (1 << 20));  // 1 MiB at once.
  const auto range = room.to_reserve();
  REQUIRE(range);
  CHECK(range->offset == 1000 + (1 << 20));
  CHECK(range->length == 10 << 20);
  room.reserved(*range);
  CHECK_FALSE(room.to_reserve());
  room.seen(1000 + (7 << 20));  // More than half of it is used, and the limit reached.
  REQUIRE(room.to_reserve());
  CHECK(room.to_reserve()->end() == 1000 + (7 << 20) + kMaxReserveBytes);
}

TEST_CASE("log room: a collapse moves the reserve with the end", "[unit][logs]") {
  LogRoom room = limited();
  room.seen(kLimit + 1);
  room.reserved({0, kLimit * 2});
  const auto cut = room.cut_over_limit(kLimit + 1, kAll);
  REQUIRE(cut);
  room.collapsed(*cut);
  CHECK(room.reserved_to() == kLimit * 2 - cut->length);
}

TEST_CASE("log room: a worker that truncates its log begins a new one", "[unit][logs]") {
  LogRoom room = limited();
  room.seen(kLimit * 2);
  room.punched(*room.cut_over_limit(kLimit * 2, kAll));
  room.seen(10);
  CHECK(room.removed_bytes() == 0);
  CHECK(room.reserved_to() == 10);
  CHECK_FALSE(room.cut_over_limit(kLimit, kAll));
  CHECK(room.cut_over_limit(kLimit + 1, kAll));
}

}  // namespace
}  // namespace muster

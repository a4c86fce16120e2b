#include "agent/core/uninterruptible.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("uninterruptible: the variable is a number of seconds, or off",
          "[unit][uninterruptible]") {
  CHECK(uninterruptible_timeout("30") == 30s);
  CHECK(uninterruptible_timeout(" 0.5\n") == 500ms);
  CHECK(uninterruptible_timeout("+1e2") == 100s);
  CHECK(uninterruptible_timeout("inf") > 24h * 3650);
  CHECK(uninterruptible_timeout("1e-300") > 0s);
  for (const char* off : {"", " ", "0", "-1", "-inf", "nan", "soon", "5s", "1 2", "+-1", "+"})
    CHECK_FALSE(uninterruptible_timeout(off));
}

struct UninterruptibleTest {
  UninterruptibleDetector detector{10s};
  Instant now{};
  char a = 'S';
  char b = 'R';

  std::optional<StuckWorker> look() {
    return detector.observe({{LocalRank{0}, a}, {LocalRank{1}, b}}, now);
  }
  /// Observes at intervals for `elapsed`; returns the last result.
  std::optional<StuckWorker> after(Duration elapsed) {
    const Instant end = now + elapsed;
    while (now + detector.interval() < end) {
      now += detector.interval();
      look();
    }
    now = end;
    return look();
  }
};

TEST_CASE_METHOD(UninterruptibleTest, "uninterruptible: a worker that stays in D is named",
                 "[unit][uninterruptible]") {
  CHECK(detector.interval() == 1s);
  CHECK_FALSE(after(0s));
  b = 'D';
  CHECK_FALSE(after(1s));
  CHECK_FALSE(after(9s));
  const auto stuck = after(1s);
  REQUIRE(stuck);
  CHECK(stuck->rank == LocalRank{1});
  CHECK(stuck->stuck == 10s);
}

TEST_CASE_METHOD(UninterruptibleTest,
                 "uninterruptible: the time of a worker that left D begins anew",
                 "[unit][uninterruptible]") {
  a = 'D';
  CHECK_FALSE(after(0s));
  CHECK_FALSE(after(9s));
  a = 'S';
  CHECK_FALSE(after(1s));
  a = 'D';
  CHECK_FALSE(after(1s));
  CHECK_FALSE(after(9s));
  CHECK(after(1s));
}

TEST_CASE_METHOD(UninterruptibleTest,
                 "uninterruptible: of several workers in D the longest is named",
                 "[unit][uninterruptible]") {
  b = 'D';
  after(0s);
  a = 'D';
  after(5s);
  const auto stuck = after(20s);
  REQUIRE(stuck);
  CHECK(stuck->rank == LocalRank{1});
  CHECK(stuck->stuck == 25s);
}

TEST_CASE_METHOD(UninterruptibleTest, "uninterruptible: reset forgets the time in D",
                 "[unit][uninterruptible]") {
  a = 'D';
  after(8s);
  detector.reset();
  CHECK_FALSE(after(8s));
}

TEST_CASE_METHOD(UninterruptibleTest,
                 "uninterruptible: a gap between two checks counts as two intervals at most",
                 "[unit][uninterruptible]") {
  a = 'D';
  CHECK_FALSE(after(0s));
  CHECK_FALSE(after(5s));
  now += 24h;
  CHECK_FALSE(look());  // At most two intervals of this day count.
  const auto stuck = after(3s);
  REQUIRE(stuck);
  CHECK(stuck->stuck == 10s);
}

TEST_CASE("uninterruptible: the interval has bounds", "[unit][uninterruptible]") {
  CHECK(UninterruptibleDetector(1ns).interval() == 100ms);
  CHECK(UninterruptibleDetector(1h).interval() == 10s);
}

}  // namespace
}  // namespace muster

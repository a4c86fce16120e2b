#include "agent/core/watched_time.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("watched wait: its length is the time between its checks", "[unit][agent]") {
  Instant now{1h};
  WatchedWait wait(now);
  CHECK(wait.advance(now) == 0s);
  CHECK(wait.advance(now += 20ms) == 20ms);
  CHECK(wait.advance(now += 1s) == 1020ms);
  CHECK(wait.until_next_check(30s) == 1s);
  CHECK(wait.until_next_check(1500ms) == 480ms);
  CHECK(wait.until_next_check(1s) == 0s);
}

TEST_CASE("watched wait: a pause of the machine does not use up a limit", "[unit][agent]") {
  Instant now{1h};
  WatchedWait wait(now);
  CHECK(wait.advance(now += 1s) == 1s);
  CHECK(wait.advance(now += 8h) == 3s);
  CHECK(wait.advance(now += 1s) == 4s);
}

}  // namespace
}  // namespace muster

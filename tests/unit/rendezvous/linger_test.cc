#include "rendezvous/server/linger.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

struct LingerTest {
  Linger linger;
  Instant now = Instant{} + 1s;

  /// A turn with one event begins `after` the last event. Returns whether the turn should wait.
  bool turn(Duration after) {
    now += after;
    const bool waits = linger.begin_turn(now);
    linger.record_events(now);
    return waits;
  }
  /// The number of prompt turns until one waits. Returns `most` + 1 if none of `most` turns waits.
  int turns_until_waiting(int most) {
    for (int i = 1; i <= most; ++i)
      if (turn(10us)) return i;
    return most + 1;
  }
  void wait_in_vain() { linger.end_waiting_turn(now += Linger::kPrompt); }
};

TEST_CASE_METHOD(LingerTest, "linger: the host waits after enough prompt turns in a row",
                 "[unit][linger]") {
  CHECK_FALSE(turn(0us));
  CHECK(turns_until_waiting(1000) == Linger::kTurnsFirst);
  CHECK(turn(10us));
}

TEST_CASE_METHOD(LingerTest, "linger: the host does not wait for a client that asks rarely",
                 "[unit][linger]") {
  for (int i = 0; i < 1000; ++i)
    CHECK_FALSE(turn(Linger::kPrompt));
}

TEST_CASE_METHOD(LingerTest, "linger: after a pause the prompt turns are counted anew",
                 "[unit][linger]") {
  turn(0us);
  turns_until_waiting(1000);
  CHECK_FALSE(turn(Linger::kPrompt));
  CHECK(turns_until_waiting(1000) == Linger::kTurnsFirst);
}

TEST_CASE_METHOD(LingerTest,
                 "linger: each wait in vain doubles the turns before the next one, up to a limit",
                 "[unit][linger]") {
  turn(0us);
  turns_until_waiting(1000);
  for (int wanted = 2 * Linger::kTurnsFirst; wanted <= Linger::kMaxTurns; wanted *= 2) {
    wait_in_vain();
    turn(0us);
    CHECK(turns_until_waiting(10'000) == wanted);
  }
  wait_in_vain();
  turn(0us);
  CHECK(turns_until_waiting(10'000) == Linger::kMaxTurns);
}

TEST_CASE_METHOD(LingerTest, "linger: a wait with an answer resets the number of turns",
                 "[unit][linger]") {
  turn(0us);
  turns_until_waiting(1000);
  wait_in_vain();
  turn(0us);
  turns_until_waiting(1000);
  linger.end_waiting_turn(now + 10us);
  CHECK(turn(20us));
  CHECK_FALSE(turn(Linger::kPrompt));
  CHECK(turns_until_waiting(1000) == Linger::kTurnsFirst);
}

}  // namespace
}  // namespace muster

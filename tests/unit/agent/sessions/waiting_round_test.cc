#include "agent/sessions/waiting_round.h"

#include <catch2/catch.hpp>

using namespace muster;

TEST_CASE("waiting round: it can be taken once, with the latest notice", "[unit][session]") {
  WaitingRound waiting;
  CHECK_FALSE(waiting.keep({.reason = "nobody waits"}));
  waiting.begin({.round = 7});
  CHECK(waiting.is_waiting(waiting.number()));
  CHECK(waiting.keep({.reason = "first"}));
  CHECK(waiting.keep({.reason = "second"}));
  const auto round = waiting.take_round();
  REQUIRE(round);
  CHECK(round->round == 7);
  CHECK_FALSE(waiting.is_waiting(waiting.number()));
  const auto notice = waiting.take_notice();
  REQUIRE(notice);
  CHECK(notice->reason == "second");
  CHECK_FALSE(waiting.take_notice());
  CHECK_FALSE(waiting.take_round());
}

TEST_CASE("waiting round: a new round ends the wait of the one before, and its notice",
          "[unit][session]") {
  WaitingRound waiting;
  waiting.begin({.round = 7});
  const int first = waiting.number();
  waiting.keep({.reason = "for round 7"});
  waiting.begin({.round = 8});
  CHECK_FALSE(waiting.is_waiting(first));
  CHECK(waiting.is_waiting(waiting.number()));
  REQUIRE(waiting.take_round());
  CHECK_FALSE(waiting.take_notice());
}

TEST_CASE("waiting round: workers that will not start wait no more", "[unit][session]") {
  WaitingRound waiting;
  waiting.begin({.round = 7});
  waiting.cancel();
  CHECK_FALSE(waiting.is_waiting(waiting.number()));
  CHECK_FALSE(waiting.take_round());
}

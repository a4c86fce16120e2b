#include "rendezvous/node/known_host.h"

#include <array>
#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

const MetHost kFirst{.place = "10.0.0.1:29400", .state_id = "aa", .state_is_shared = false};
const MetHost kSecond{.place = "10.0.0.2:29400", .state_id = "bb", .state_is_shared = false};
const std::array<std::string, 2> kBoth = {kFirst.place, kSecond.place};

TEST_CASE("known host: one that does not share its state is not gone on with",
          "[unit][known_host]") {
  KnownHost known;
  CHECK(known.why_not(kSecond, kBoth).empty());  // None is known yet.
  known.meet(kFirst);
  CHECK(known.why_not(kFirst, kBoth).empty());
  CHECK_THAT(known.why_not(kSecond, kBoth),
             Catch::Contains("10.0.0.2:29400 does not share the state of the one at 10.0.0.1"));
}

TEST_CASE("known host: the next leader of one state", "[unit][known_host]") {
  KnownHost known;
  known.meet({.place = kFirst.place, .state_id = "cc", .state_is_shared = true});
  const MetHost next{.place = kSecond.place, .state_id = "cc", .state_is_shared = true};
  CHECK(known.why_not(next, kBoth).empty());
  known.meet(next);
  CHECK_FALSE(known.why_not(kFirst, kBoth).empty());
}

TEST_CASE("known host: started again without its state", "[unit][known_host]") {
  KnownHost known;
  known.meet(kFirst);
  MetHost again = kFirst;
  again.state_id = "dd";
  CHECK(known.why_not(again, kBoth).empty());
  known.meet(again);
  CHECK_FALSE(known.why_not(kSecond, kBoth).empty());
}

TEST_CASE("known host: the name has another address now", "[unit][known_host]") {
  KnownHost known;
  known.meet(kFirst);
  CHECK(known.why_not(kSecond, std::array{kSecond.place}).empty());
}

TEST_CASE("known host: older hosts say nothing about their state", "[unit][known_host]") {
  const MetHost older{.place = kSecond.place, .state_id = {}};
  KnownHost known;
  known.meet(kFirst);
  CHECK(known.why_not(older, kBoth).empty());
  known.meet(older);
  CHECK(known.why_not(kFirst, kBoth).empty());
  CHECK(why_not_both(kFirst, older).empty());
}

TEST_CASE("known host: two that may not be used for one run", "[unit][known_host]") {
  CHECK_THAT(why_not_both(kFirst, kSecond), Catch::Contains("do not share their state"));
  CHECK(why_not_both(kFirst, kFirst).empty());
  MetHost same = kSecond;
  same.state_id = kFirst.state_id;
  CHECK(why_not_both(kFirst, same).empty());  // Two addresses of one host.
}

}  // namespace
}  // namespace muster

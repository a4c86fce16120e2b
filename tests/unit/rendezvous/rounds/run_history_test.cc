#include "rendezvous/rounds/run_history.h"

#include <algorithm>
#include <string>

#include <catch2/catch.hpp>

namespace muster::testing {

using namespace std::chrono_literals;
using Kind = RunEvent::Kind;

struct RunHistoryTest {
  void add(Kind kind, Duration elapsed = 0s, std::optional<RestartCause> cause = std::nullopt) {
    history.add({.kind = kind, .node = "a_1_0", .cause = cause, .text = "why"}, now += elapsed,
                counters);
  }
  Instant now{1h};
  RunHistory history;
  RunCounters counters;
};

TEST_CASE_METHOD(RunHistoryTest, "run history: events are numbered, and their number is limited",
                 "[unit][rendezvous]") {
  CHECK_FALSE(history.last_number());
  for (std::size_t i = 0; i < kMaxRunEvents + 10; ++i)
    add(i % 2 == 0 ? Kind::RoundComplete : Kind::RoundRestarts);
  CHECK(history.events().size() == kMaxRunEvents);
  CHECK(history.events().front().number == 11);
  CHECK(history.last_number() == kMaxRunEvents + 10);
}

TEST_CASE_METHOD(RunHistoryTest, "run history: the numbers may begin anywhere",
                 "[unit][rendezvous]") {
  history = RunHistory(1'700'000'000'000);
  CHECK_FALSE(history.last_number());
  add(Kind::Began);
  CHECK(history.events().front().number == 1'700'000'000'000);
  CHECK(history.last_number() == 1'700'000'000'000);
}

TEST_CASE_METHOD(RunHistoryTest,
                 "run history: thousands of lost nodes do not push out what came before",
                 "[unit][rendezvous]") {
  add(Kind::Began);
  for (int i = 0; i < 4096; ++i)
    add(Kind::NodeLost);
  CHECK(history.events().size() == 1 + kMaxLikeEvents);
  CHECK(history.events().back().like == 4096 - kMaxLikeEvents);
  CHECK(history.events().back().number == 4097);
  CHECK(counters.nodes_lost == 4096);
  add(Kind::RoundComplete);
  add(Kind::NodeLost);
  CHECK(history.events().back().like == 0);
}

TEST_CASE_METHOD(RunHistoryTest, "run history: a long text is cut between two characters",
                 "[unit][rendezvous]") {
  std::string text;
  while (text.size() < 2 * kMaxEventTextBytes)
    text += "\u00e9";
  history.add({.kind = Kind::Failed, .text = "x" + text}, now, counters);
  const std::string& kept = history.events().back().text;
  CHECK(kept.size() <= kMaxEventTextBytes);
  CHECK(kept.substr(kept.size() - 5) == "\u00e9...");
}

TEST_CASE_METHOD(RunHistoryTest, "run history: the first failure stays until the run begins again",
                 "[unit][rendezvous]") {
  add(Kind::RoundRestarts, 0s, RestartCause::NodeJoined);
  CHECK_FALSE(history.first_failure());
  add(Kind::RoundRestarts, 0s, RestartCause::WorkersFailed);
  add(Kind::NodeLost);
  REQUIRE(history.first_failure());
  CHECK(history.first_failure()->kind == Kind::RoundRestarts);
  add(Kind::Began);
  CHECK_FALSE(history.first_failure());
  add(Kind::NodeLeft);
  CHECK_FALSE(history.first_failure());
  add(Kind::Failed);
  CHECK(history.first_failure()->kind == Kind::Failed);
}

TEST_CASE_METHOD(RunHistoryTest,
                 "run history: a recovery lasts from the first restart to the next round",
                 "[unit][rendezvous]") {
  add(Kind::RoundComplete);
  CHECK(counters.recovery.count() == 0);
  add(Kind::RoundRestarts, 1s, RestartCause::NodeLost);
  add(Kind::RoundRestarts, 1s, RestartCause::NodeLost);
  add(Kind::RoundComplete, 3s);
  CHECK(counters.recovery.count() == 1);
  CHECK(counters.recovery.sum_seconds == Approx(4.0));
  CHECK(counters.restarts[static_cast<std::size_t>(RestartCause::NodeLost)] == 2);
  CHECK(counters.rounds == 2);
}

TEST_CASE("duration histogram: each duration is in the first class that holds it",
          "[unit][rendezvous]") {
  DurationHistogram histogram;
  histogram.add(0s);
  histogram.add(5ms);
  histogram.add(6ms);
  histogram.add(1h);
  CHECK(histogram.counts[0] == 2);
  CHECK(histogram.counts[1] == 1);
  CHECK(histogram.counts.back() == 1);
  CHECK(histogram.count() == 4);
}

}  // namespace muster::testing

#include "agent/core/forwarded_signals.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {
using namespace std::chrono_literals;
using At = ForwardedSignals::At;

TEST_CASE("forwarded signals: workers get a signal once, if they do not have it already",
          "[unit][agent]") {
  ForwardedSignals signals;
  Instant now{};
  CHECK_FALSE(signals.next_due());
  const auto number = GENERATE(10, 14, 36);
  SECTION("the launcher alone got it") {
    signals.arrived(number, At::Front, now);
    signals.arrived(number, At::Front, now += 30ms);
    REQUIRE(signals.next_due() == now - 30ms + ForwardedSignals::kWindow);
    CHECK(signals.due(now).empty());
    const auto due = signals.due(*signals.next_due());
    REQUIRE(due.size() == 1);
    CHECK(due[0].number == number);
    CHECK_FALSE(due[0].workers_have_it);
  }
  SECTION("every process got it, in any order") {
    const bool shim_first = GENERATE(true, false);
    signals.arrived(number, shim_first ? At::Shim : At::Front, now);
    signals.arrived(number, shim_first ? At::Front : At::Shim, now += 100ms);
    const auto due = signals.due(now + ForwardedSignals::kWindow);
    REQUIRE(due.size() == 1);
    CHECK(due[0].workers_have_it);
  }
  SECTION("a worker has sent it to its parent") {
    signals.arrived(number, At::Shim, now);
    CHECK_FALSE(signals.due(now + 1s).at(0).workers_have_it);
  }
  CHECK(signals.due(now + 1h).empty());
}

TEST_CASE("forwarded signals: two signals wait side by side", "[unit][agent]") {
  ForwardedSignals signals;
  signals.arrived(10, At::Front, Instant{});
  signals.arrived(12, At::Shim, Instant{} + 100ms);
  CHECK(signals.next_due() == Instant{} + ForwardedSignals::kWindow);
  CHECK(signals.due(Instant{} + ForwardedSignals::kWindow).at(0).number == 10);
  CHECK(signals.due(Instant{} + 1s).at(0).number == 12);
}

}  // namespace
}  // namespace muster

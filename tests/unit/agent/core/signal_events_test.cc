#include "agent/core/signal_events.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr int kHup = 1;
constexpr int kInt = 2;
constexpr int kTerm = 15;

struct SignalEventsTest {
  bool kernel(int number, Duration later) {
    return events.begins_event({.number = number, .from_kernel = true}, now += later);
  }
  bool process(int number, Duration later) {
    return events.begins_event({.number = number, .from_kernel = false}, now += later);
  }
  SignalEvents events;
  Instant now{1h};
};

TEST_CASE_METHOD(SignalEventsTest,
                 "signal events: the two SIGHUPs of a lost terminal are one event",
                 "[unit][agent]") {
  CHECK(kernel(kHup, 0s));
  CHECK_FALSE(process(kHup, 1ms));
  CHECK_FALSE(process(kTerm, 500ms));
  CHECK(events.count() == 1);
}

TEST_CASE_METHOD(SignalEventsTest,
                 "signal events: the SIGHUP of a shell that ends late is no second event",
                 "[unit][agent]") {
  SECTION("the shell's SIGHUP comes first") {
    CHECK(process(kHup, 0s));
    CHECK_FALSE(kernel(kHup, 5s));
  }
  SECTION("the kernel's SIGHUP comes first") {
    CHECK(kernel(kHup, 0s));
    CHECK_FALSE(process(kHup, 5s));
  }
  CHECK(process(kTerm, 5s));
  CHECK(events.count() == 2);
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: a SIGHUP a second later is a second event",
                 "[unit][agent]") {
  CHECK(process(kHup, 0s));
  CHECK(process(kHup, 1s));
}

TEST_CASE_METHOD(SignalEventsTest,
                 "signal events: a key that is pressed twice quickly makes two events",
                 "[unit][agent]") {
  CHECK(kernel(kInt, 0s));
  CHECK(kernel(kInt, 150ms));
  CHECK(kernel(kInt, 150ms));
  CHECK(events.count() == 3);
}

TEST_CASE_METHOD(SignalEventsTest,
                 "signal events: a wrapper that passes on a key's signal adds no event",
                 "[unit][agent]") {
  CHECK(kernel(kInt, 0s));
  CHECK_FALSE(process(kInt, 1ms));
  CHECK(kernel(kInt, 200ms));
  CHECK_FALSE(process(kInt, 1ms));
  CHECK(events.count() == 2);
}

TEST_CASE_METHOD(SignalEventsTest,
                 "signal events: a wrapper's signal before the terminal's adds no event",
                 "[unit][agent]") {
  CHECK(process(kInt, 0s));
  CHECK_FALSE(kernel(kInt, 1ms));
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: a signal after a second is another event",
                 "[unit][agent]") {
  CHECK(process(kTerm, 0s));
  CHECK_FALSE(process(kTerm, SignalEvents::kEventWindow - 1ms));
  CHECK(process(kTerm, 1ms));  // kEventWindow counts from the first signal.
  CHECK(events.count() == 2);
}

}  // namespace
}  // namespace muster

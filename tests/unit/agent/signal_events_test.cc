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

TEST_CASE_METHOD(SignalEventsTest, "signal events: a lost terminal is one event, twice told",
                 "[unit][agent]") {
  CHECK(kernel(kHup, 0s));
  CHECK_FALSE(process(kHup, 1ms));
  CHECK_FALSE(process(kTerm, 500ms));
  CHECK(events.count() == 1);
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: a shell that ends late hangs up no second time",
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

TEST_CASE_METHOD(SignalEventsTest, "signal events: who sends SIGHUP again a second later means it",
                 "[unit][agent]") {
  CHECK(process(kHup, 0s));
  CHECK(process(kHup, 1s));
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: a key pressed twice is two, however quickly",
                 "[unit][agent]") {
  CHECK(kernel(kInt, 0s));
  CHECK(kernel(kInt, 150ms));
  CHECK(kernel(kInt, 150ms));
  CHECK(events.count() == 3);
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: a wrapper that passes a key on adds nothing",
                 "[unit][agent]") {
  CHECK(kernel(kInt, 0s));
  CHECK_FALSE(process(kInt, 1ms));
  CHECK(kernel(kInt, 200ms));
  CHECK_FALSE(process(kInt, 1ms));
  CHECK(events.count() == 2);
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: the wrapper may be faster than the terminal",
                 "[unit][agent]") {
  CHECK(process(kInt, 0s));
  CHECK_FALSE(kernel(kInt, 1ms));
}

TEST_CASE_METHOD(SignalEventsTest, "signal events: after a second it is another wish",
                 "[unit][agent]") {
  CHECK(process(kTerm, 0s));
  CHECK_FALSE(process(kTerm, SignalEvents::kEventWindow - 1ms));
  CHECK(process(kTerm, 1ms));  // kEventWindow counts from the first signal.
  CHECK(events.count() == 2);
}

}  // namespace
}  // namespace muster

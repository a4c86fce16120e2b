// The events of a simulated world, in the order of their instants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "base/time.h"

namespace muster::testing {

class EventQueue {
 public:
  void push(Instant when, std::function<void()> what) {
    events_.push({when, order_++, std::move(what)});
  }
  /// Runs events until `done()` is true, or until no event is left up to `end`, and advances `now`.
  /// Returns whether `done()` is true, or true without `done`. `describe` adds a text if the test
  /// fails because time stands still.
  bool run_until(Instant& now, Instant end, const std::function<bool()>& done,
                 const std::function<std::string()>& describe = {}) {
    while (!(done && done())) {
      if (events_.empty() || events_.top().when > end) {
        now = std::max(now, end);
        return !done;
      }
      const Event event = events_.top();
      events_.pop();
      if (event.when > now) at_this_instant_ = 0;
      now = std::max(now, event.when);
      if (++at_this_instant_ > 100'000) FAIL("time stands still\n" << (describe ? describe() : ""));
      event.what();
    }
    return true;
  }

 private:
  struct Event {
    Instant when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::tie(when, order) > std::tie(other.when, other.order);
    }
  };
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  int at_this_instant_ = 0;
};

}  // namespace muster::testing

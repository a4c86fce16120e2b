#include "agent/core/timer_table.h"

#include <algorithm>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

std::string line_defect(std::string_view line) {
  const auto request = parse_timer_request(line);
  REQUIRE_FALSE(request.has_value());
  return request.error().text;
}

TEST_CASE("timer_table: a line of torch's client", "[unit][timer]") {
  const auto set =
      parse_timer_request(R"({"version": 1, "pid": 4711, "scope_id": "/home/a/x.py#12", )"
                          R"("expiration_time": 1795252105.25, "signal": 9})");
  REQUIRE(set.has_value());
  CHECK(set->pid == 4711);
  CHECK(set->scope == "/home/a/x.py#12");
  CHECK(set->expires_at_s == 1795252105.25);
  CHECK(set->signal == 9);
  const auto off = parse_timer_request(
      R"({"version": 1, "pid": 4711, "scope_id": "s", "expiration_time": -1, "signal": 0})");
  REQUIRE(off.has_value());
  CHECK_FALSE(off->expires_at_s);
}

TEST_CASE("timer_table: lines that are no timers are refused with a reason", "[unit][timer]") {
  CHECK(line_defect("hello") == "it is no object of JSON");
  CHECK(line_defect("") == "it is no object of JSON");
  CHECK(line_defect("1") == "it is no object of JSON");
  CHECK(line_defect(R"( {"pid": 1})") == "it is no object of JSON");
  CHECK(line_defect("[1]") == "it is no object of JSON");
  CHECK(line_defect(R"({"pid": 1)") == "it is no object of JSON");
  CHECK(line_defect(R"({"a": [[[[[[[[1]]]]]]]]})") == "it is no object of JSON");
  CHECK(line_defect("{}") == "it has no pid above 0");
  CHECK(line_defect(R"({"pid": -1})") == "it has no pid above 0");
  CHECK(line_defect(R"({"pid": 18446744073709551615})") == "it has no pid above 0");
  CHECK(line_defect(R"({"pid": "1"})") == "it has no pid above 0");
  CHECK(line_defect(R"({"pid": 1, "scope_id": 2})") == "it has no text scope_id");
  CHECK(line_defect(R"({"pid": 1, "scope_id": "s", "expiration_time": "soon"})") ==
        "it has no number expiration_time");
  CHECK(line_defect(R"({"pid": 1, "scope_id": "s", "expiration_time": 1, "signal": 65})") ==
        "it has no number of a signal");
  CHECK(line_defect(std::string(kMaxTimerLineBytes + 1, 'x')) == "it is too long");
}

TEST_CASE("timer_table: bytes in any pieces become lines", "[unit][timer]") {
  TimerLines lines;
  CHECK(lines.feed("on").empty());
  CHECK(lines.feed("e\ntwo\n\nthr") == std::vector<std::string>{"one", "two"});
  CHECK(lines.feed("ee\n") == std::vector<std::string>{"three"});
}

TEST_CASE("timer_table: a line without end takes no memory, and the next is read",
          "[unit][timer]") {
  TimerLines lines;
  std::size_t seen = 0;
  for (int i = 0; i < 100; ++i)
    for (const std::string& line : lines.feed(std::string(1000, 'x'))) {
      CHECK(line.size() == kMaxTimerLineBytes + 1);
      ++seen;
    }
  CHECK(seen == 1);
  CHECK(lines.feed("xxx\nnext\n") == std::vector<std::string>{"next"});
}

struct TimerTableTest {
  TimerTable table;
  Instant now{Duration(1h)};
  static constexpr double kWall = 1.8e9;

  /// Sets a timer that expires in `in_s` seconds.
  bool set(int pid, const std::string& scope, double in_s, int signal = 9) {
    return table.apply({pid, scope, kWall + in_s, signal}, now, kWall);
  }
  /// Calls expire() at each of the table's deadlines, up to `until`.
  std::vector<ExpiredTimer> expire(Instant until) {
    std::vector<ExpiredTimer> all;
    for (;;) {
      const Instant next = std::min(table.next_deadline().value_or(until), until);
      const std::vector<ExpiredTimer> expired = table.expire(next);
      all.insert(all.end(), expired.begin(), expired.end());
      if (next == until) return all;
    }
  }
  void release(int pid, const std::string& scope) {
    table.apply({pid, scope, std::nullopt, 0}, now, kWall);
  }
};

TEST_CASE_METHOD(TimerTableTest, "timer_table: a timer that is not cancelled runs out",
                 "[unit][timer]") {
  CHECK_FALSE(table.next_deadline());
  CHECK(set(1, "a", 2.5));
  CHECK(table.next_deadline() == now + TimerTable::kCheckInterval);
  CHECK(expire(now + 2499ms).empty());
  CHECK(table.next_deadline() == now + 2500ms);
  CHECK(expire(now + 2500ms) == std::vector<ExpiredTimer>{{1, "a", 9}});
  CHECK(table.expire(now + 1h).empty());
  CHECK_FALSE(table.next_deadline());
}

TEST_CASE_METHOD(TimerTableTest, "timer_table: a cancelled timer does not run out",
                 "[unit][timer]") {
  set(1, "a", 1);
  set(1, "b", 2);
  set(2, "a", 3);
  release(1, "a");
  release(1, "never set");
  CHECK(expire(now + 10s) == std::vector<ExpiredTimer>{{1, "b", 9}, {2, "a", 9}});
}

TEST_CASE_METHOD(TimerTableTest, "timer_table: setting a scope again moves its timer",
                 "[unit][timer]") {
  set(1, "a", 1);
  set(1, "a", 5);
  CHECK(expire(now + 4s).empty());
  CHECK(expire(now + 5s).size() == 1);
}

TEST_CASE_METHOD(TimerTableTest, "timer_table: a pause of the whole machine does not count",
                 "[unit][timer]") {
  set(1, "a", 6);
  CHECK(expire(now + 3s).empty());
  now += 10h;
  CHECK(table.expire(now).empty());  // At most two seconds of these hours count.
  CHECK(set(2, "b", 1));
  CHECK(expire(now + 1s) == std::vector<ExpiredTimer>{{1, "a", 9}, {2, "b", 9}});
}

TEST_CASE_METHOD(TimerTableTest,
                 "timer_table: of a process's timers the first with a signal decides",
                 "[unit][timer]") {
  set(1, "says nothing", 1, 0);
  set(1, "terminate", 3, 15);
  set(1, "kill", 2, 9);
  set(1, "not yet", 100, 6);
  now += 2s;  // A single check, because its thread was late.
  CHECK(table.expire(now) == std::vector<ExpiredTimer>{{1, "kill", 9}});
  CHECK_FALSE(table.next_deadline());  // All timers of the process are removed.
  set(1, "says nothing", 1, 0);
  CHECK(expire(now + 5s) == std::vector<ExpiredTimer>{{1, "says nothing", 0}});
}

TEST_CASE_METHOD(TimerTableTest, "timer_table: extreme times are in the past or never come",
                 "[unit][timer]") {
  set(1, "long ago", -1e12);
  CHECK(table.expire(now).size() == 1);
  set(1, "never", 1e300);
  CHECK(expire(now + 1h).empty());
  CHECK(table.next_deadline() == now + 1h + TimerTable::kCheckInterval);
}

TEST_CASE_METHOD(TimerTableTest, "timer_table: a process is forgotten with its timers",
                 "[unit][timer]") {
  set(1, "a", 1);
  set(2, "a", 2);
  set(2, "b", 2);
  set(3, "a", 3);
  CHECK(table.pids() == std::vector<int>{1, 2, 3});
  table.remove(2);
  CHECK(table.pids() == std::vector<int>{1, 3});
  table.clear();
  CHECK_FALSE(table.next_deadline());
}

TEST_CASE_METHOD(TimerTableTest,
                 "timer_table: at the limit no timer is added, and old ones can change",
                 "[unit][timer]") {
  for (std::size_t i = 0; i < kMaxTimers; ++i)
    REQUIRE(set(1, std::to_string(i), 10));
  CHECK_FALSE(set(1, "one more", 10));
  CHECK(set(1, "0", 20));
  release(1, "1");
  CHECK(set(1, "one more", 10));
}

TEST_CASE_METHOD(TimerTableTest, "timer_table: room is made at most once in a check interval",
                 "[unit][timer]") {
  CHECK(table.may_make_room(now));
  CHECK_FALSE(table.may_make_room(now));
  CHECK_FALSE(table.may_make_room(now + TimerTable::kCheckInterval - 1ns));
  now += TimerTable::kCheckInterval;
  CHECK(table.may_make_room(now));
  CHECK_FALSE(table.may_make_room(now + 1ms));
}

}  // namespace
}  // namespace muster

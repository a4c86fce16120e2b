#include "notice_lines.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;
using Clock = NoticeLines::Clock;

std::optional<Clock::time_point> deadline_of(std::string_view bytes) {
  NoticeLines lines;
  REQUIRE(lines.add(bytes));
  return lines.deadline();
}

constexpr std::string_view kNotice =
    "{\"type\":\"preempt\",\"deadline_s\":26.5,\"deadline_monotonic_s\":8123.25}\n";
constexpr Clock::time_point kThen(8123250ms);

TEST_CASE("notice lines: the last notice counts", "[unit][worker_channel]") {
  NoticeLines lines;
  CHECK_FALSE(lines.deadline());
  CHECK(lines.add(kNotice));
  CHECK(lines.deadline() == kThen);
  CHECK(lines.add("{\"type\":\"preempt\",\"deadline_monotonic_s\" : 9000}\n"));
  CHECK(lines.deadline() == Clock::time_point(9000s));
}

TEST_CASE("notice lines: where the bytes are cut does not matter", "[unit][worker_channel]") {
  for (std::size_t cut = 0; cut < kNotice.size(); ++cut) {
    NoticeLines lines;
    CHECK(lines.add(kNotice.substr(0, cut)));
    CHECK_FALSE(lines.deadline());
    CHECK(lines.add(kNotice.substr(cut)));
    CHECK(lines.deadline() == kThen);
  }
}

TEST_CASE("notice lines: other lines are skipped", "[unit][worker_channel]") {
  CHECK_FALSE(deadline_of("{\"type\":\"news\",\"deadline_monotonic_s\":5}\n"));
  CHECK_FALSE(deadline_of("{\"type\":\"preempt\"}\n\n{}\nx\n"));
  for (const char* number : {"-1", "nan", "inf", "1e300", "1e10", "\"5\"", "", "x"})
    CHECK_FALSE(deadline_of(
        "{\"type\":\"preempt\",\"deadline_monotonic_s\":" + std::string(number) + "}\n"));
}

TEST_CASE("notice lines: a line has a limit", "[unit][worker_channel]") {
  const std::string longest(NoticeLines::kMaxLineBytes, ' ');
  CHECK(NoticeLines().add(longest));
  CHECK(NoticeLines().add(longest + "\n"));
  CHECK_FALSE(NoticeLines().add(longest + " "));
  CHECK_FALSE(NoticeLines().add(longest + " \n"));
}

}  // namespace
}  // namespace muster

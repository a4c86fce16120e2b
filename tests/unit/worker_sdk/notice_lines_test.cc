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
  return lines.notice() ? std::optional(lines.notice()->deadline) : std::nullopt;
}

constexpr std::string_view kNotice =
    "{\"type\":\"preempt\",\"deadline_s\":26.5,\"deadline_monotonic_s\":8123.25}\n";
constexpr Clock::time_point kThen(8123250ms);

TEST_CASE("notice lines: the last notice counts", "[unit][worker_channel]") {
  NoticeLines lines;
  CHECK_FALSE(lines.notice());
  CHECK(lines.add(kNotice));
  CHECK(lines.notice()->deadline == kThen);
  CHECK(lines.add("{\"type\":\"preempt\",\"deadline_monotonic_s\" : 9000}\n"));
  CHECK(lines.notice()->deadline == Clock::time_point(9000s));
}

TEST_CASE("notice lines: where the bytes are cut does not matter", "[unit][worker_channel]") {
  for (std::size_t cut = 0; cut < kNotice.size(); ++cut) {
    NoticeLines lines;
    CHECK(lines.add(kNotice.substr(0, cut)));
    CHECK_FALSE(lines.notice());
    CHECK(lines.add(kNotice.substr(cut)));
    CHECK(lines.notice()->deadline == kThen);
  }
}

TEST_CASE("notice lines: other lines are skipped", "[unit][worker_channel]") {
  CHECK_FALSE(deadline_of("{\"type\":\"news\",\"deadline_monotonic_s\":5}\n"));
  CHECK_FALSE(deadline_of("{\"type\":\"preempt\"}\n\n{}\nx\n"));
  for (const char* number : {"-1", "nan", "inf", "1e300", "1e10", "\"5\"", "", "x"})
    CHECK_FALSE(deadline_of(
        "{\"type\":\"preempt\",\"deadline_monotonic_s\":" + std::string(number) + "}\n"));
}

AgentNotice notice_of(std::string_view fields) {
  NoticeLines lines;
  REQUIRE(
      lines.add("{\"type\":\"preempt\",\"deadline_monotonic_s\":5" + std::string(fields) + "}\n"));
  REQUIRE(lines.notice());
  CHECK(lines.notice()->deadline == Clock::time_point(5s));
  return *lines.notice();
}

TEST_CASE("notice lines: why and for whom", "[unit][worker_channel]") {
  const AgentNotice notice =
      notice_of(R"(,"id":7,"reason":"node \"b\" goes: \u00e4\n\ud83d\ude00","doomed":false,)"
                R"("doomed_ranks":[[0,3],[ 8 , 8 ]],"follow":"shrink","more":{"a":[1,{}]})");
  CHECK(notice.id == 7);
  CHECK(notice.reason == "node \"b\" goes: \u00e4\n\U0001f600");
  CHECK_FALSE(notice.doomed);
  CHECK(notice.doomed_ranks == std::vector<std::pair<int, int>>{{0, 3}, {8, 8}});
  CHECK(notice.follow == "shrink");
}

TEST_CASE("notice lines: fields that an older muster does not send", "[unit][worker_channel]") {
  const AgentNotice notice = notice_of("");
  CHECK(notice.id == 0);
  CHECK(notice.reason.empty());
  CHECK(notice.doomed);
  CHECK(notice.doomed_ranks.empty());
  CHECK(notice.follow.empty());
}

TEST_CASE("notice lines: fields of another type are skipped", "[unit][worker_channel]") {
  const AgentNotice notice =
      notice_of(R"(,"id":"7","reason":[1],"doomed":0,"follow":null,"doomed_ranks":5)");
  CHECK(notice.id == 0);
  CHECK(notice.reason.empty());
  CHECK(notice.doomed);
  CHECK(notice.follow.empty());
  for (const char* ranks : {"5", "[1]", "[[1]]", "[[1,2,3]]", "[[2,1]]", "[[-1,1]]", "{}",
                            "[[0,1],[2,3000000000]]", "[[0,1.5]]"})
    CHECK(notice_of(",\"doomed_ranks\":" + std::string(ranks)).doomed_ranks.empty());
}

TEST_CASE("notice lines: a text that looks like a field", "[unit][worker_channel]") {
  const AgentNotice notice = notice_of(R"(,"reason":"\"deadline_monotonic_s\":9,\"id\":9")");
  CHECK(notice.id == 0);
  NoticeLines lines;
  CHECK(lines.add("{\"type\":\"news\",\"of\":\"preempt\",\"deadline_monotonic_s\":5}\n"));
  CHECK_FALSE(lines.notice());
}

TEST_CASE("notice lines: lines that are no JSON object are skipped", "[unit][worker_channel]") {
  const std::string begin = "{\"type\":\"preempt\",\"deadline_monotonic_s\":5";
  const std::string open(20, '['), close(20, ']');
  for (const std::string& line :
       {begin, begin + ",}", begin + "}}", begin + ",\"a\"}", begin + ",\"a\":}", begin + ",a:1}",
        begin + ",\"a\":\"b}", begin + ",\"a\":\"\\x\"}", begin + ",\"a\":\"\\u12\"}",
        begin + ",\"a\":\"\\ud800\"}", begin + ",\"a\":\"\\udc00\"}", begin + ",\"a\":nul}",
        begin + ",\"a\":-}", begin + ",\"a\":nan}", begin + ",\"a\":[1,]}",
        begin + ",\"a\":" + open + close + "}", "[" + begin + "}]", begin + ",\"a\":\"\x01\"}"}) {
    INFO(line);
    CHECK_FALSE(deadline_of(line + "\n"));
  }
  CHECK(deadline_of(begin + ",\"a\":[[[1e999,-0.5],true,null,\"\\/\"],{}]} \r\n"));
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

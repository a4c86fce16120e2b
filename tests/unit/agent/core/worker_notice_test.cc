#include "agent/core/worker_notice.h"

#include <limits>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "agent/core/worker_lines.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

std::string times_of(Instant deadline, Instant now) {
  const std::string line = preempt_line({.deadline = deadline, .id = 1}, now);
  return line.substr(0, line.find(",\"id\""));
}

TEST_CASE("worker notice: its times", "[unit][worker_channel]") {
  const std::string begin = "{\"type\":\"preempt\",\"deadline_s\":";
  CHECK(times_of(Instant(100s), Instant(74s)) == begin + "26.000,\"deadline_monotonic_s\":100.000");
  CHECK(times_of(Instant(100s), Instant(101s)) == begin + "0.000,\"deadline_monotonic_s\":100.000");
  // Rounded down, both.
  CHECK(times_of(Instant(100s + 7999us), Instant(74s)) ==
        begin + "26.007,\"deadline_monotonic_s\":100.007");
}

TEST_CASE("worker notice: its fields", "[unit][worker_channel]") {
  CHECK(preempt_line({.deadline = Instant(2s), .reason = "SIGTERM", .id = 7}, Instant(1s)) ==
        "{\"type\":\"preempt\",\"deadline_s\":1.000,\"deadline_monotonic_s\":2.000,\"id\":7,"
        "\"reason\":\"SIGTERM\",\"doomed\":true,\"follow\":\"stop\"}\n");
  CHECK(preempt_line({.deadline = Instant(2s),
                      .reason = "node \"b\"\ngoes",
                      .doomed = false,
                      .doomed_ranks = {{0, 3}, {8, 8}},
                      .follow = AfterNotice::Shrink,
                      .id = 8},
                     Instant(1s)) ==
        "{\"type\":\"preempt\",\"deadline_s\":1.000,\"deadline_monotonic_s\":2.000,\"id\":8,"
        "\"reason\":\"node \\\"b\\\"\\ngoes\",\"doomed\":false,\"doomed_ranks\":[[0,3],[8,8]],"
        "\"follow\":\"shrink\"}\n");
  CHECK_THAT(preempt_line({.follow = AfterNotice::Restart}, Instant(1s)),
             Catch::Contains("\"follow\":\"restart\""));
}

TEST_CASE("worker notice: a reason that is no UTF-8, or is cut within a character",
          "[unit][worker_channel]") {
  const auto reason_of = [](std::string reason) {
    return nlohmann::json::parse(preempt_line({.reason = std::move(reason)}, Instant{}))["reason"]
        .get<std::string>();
  };
  CHECK(reason_of("a\xff") == "a\xef\xbf\xbd");
  const std::string almost(WorkerNotice::kMaxReasonBytes - 1, 'x');
  CHECK(reason_of(almost + "\xc3\xa4") == almost);
  CHECK(reason_of(almost + "xx") == almost + "x");
}

TEST_CASE("worker notice: the longest line has room in the channel", "[unit][worker_channel]") {
  const int last = std::numeric_limits<int>::max();
  WorkerNotice notice{.deadline = Instant(999'999'999s),
                      .reason = std::string(1000, '\x01'),
                      .doomed = false,
                      .doomed_ranks = {},
                      .follow = AfterNotice::Restart,
                      .id = std::numeric_limits<std::int64_t>::max()};
  notice.doomed_ranks.assign(1000, {last, last});
  const std::string line = preempt_line(notice, Instant{});
  CHECK(line.size() <= WorkerLines::kMaxLineBytes + 1);
  CHECK(nlohmann::json::parse(line)["doomed_ranks"].size() == WorkerNotice::kMaxDoomedRanges);
}

}  // namespace
}  // namespace muster

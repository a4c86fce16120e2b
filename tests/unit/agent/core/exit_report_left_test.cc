// The report about workers that have not ended, because they could not be killed.
#include <csignal>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "agent/core/exit_report.h"

namespace muster {
namespace {

using Catch::Contains;

struct LeftWorkerTest {
  static constexpr std::int64_t kNow = 1'795'252'106;  // 2026-11-21 09:08:26 UTC.

  // A worker that muster signalled one second before the report. It has not ended.
  static ExplainedEnd left(int rank) {
    ExplainedEnd end;
    end.local_rank.value = end.rank.value = rank;
    end.pid = 100 + rank;
    end.record_signal(SIGKILL, false, (kNow - 1) * 1000);
    return end;
  }
  // A worker that died of that signal.
  static ExplainedEnd killed(int rank, int order) {
    ExplainedEnd end = left(rank);
    end.exit = {.killed = true, .status = SIGKILL};
    end.order = order;
    end.died_ms = kNow * 1000 - 900;
    return end;
  }
  static ExplainedEnd hung(ExplainedEnd end) {
    end.ended_because = "it hung: no output for 30 s";
    return end;
  }
  static ExitReport report_of(std::vector<ExplainedEnd> ends) {
    return {{.title = "train.py",
             .host = "node1",
             .started_ms = (kNow - 60) * 1000,
             .now_ms = kNow * 1000},
            std::move(ends)};
  }
};

TEST_CASE_METHOD(LeftWorkerTest,
                 "exit_report: a worker that hangs and cannot be killed is the cause",
                 "[unit][agent]") {
  const ExitReport report = report_of({killed(0, 0), hung(left(1)), killed(2, 1)});
  REQUIRE(report.first_failure() != nullptr);
  CHECK(report.first_failure()->rank.value == 1);
  REQUIRE(report.failures().size() == 3);
  CHECK(report.failures()[2].rank.value == 1);  // In the order of the deaths.
  CHECK_FALSE(report.is_victim(report.failures()[2]));
  CHECK_THAT(report.text(), Contains("  time      : 2026-11-21_09:08:26\n"
                                     "  host      : node1\n"
                                     "  rank      : 1 (local_rank: 1)\n"
                                     "  exitcode  : <N/A> (pid: 101) \n"
                                     "  error_file: <N/A>\n"
                                     "  traceback : it hung: no output for 30 s\n"
                                     "  it did not end after SIGKILL: it is left behind\n"));
  CHECK_THAT(report.text(), Contains("stopped by muster, because rank 1 had failed"));

  const auto json = nlohmann::json::parse(report.json());
  CHECK(json["first_failure"] == 1);
  const auto& failure = json["failures"][2];
  CHECK(failure["exitcode"].is_null());
  CHECK(failure["died"].is_null());
  CHECK(failure["signal"].is_null());
  CHECK(failure["victim"] == false);

  const auto record = read_error_file(report.error_file(""));
  REQUIRE(record.has_value());
  CHECK(record->message == "rank 1 on node1 failed (it could not be killed)");
  CHECK_FALSE(record->error_code);
  CHECK(record->timestamp_s == kNow);
}

TEST_CASE_METHOD(
    LeftWorkerTest,
    "exit_report: a worker that hung is the cause, even if it ends long after the others",
    "[unit][agent]") {
  ExplainedEnd late = hung(killed(1, 2));
  late.died_ms += 20'000;
  const ExitReport report = report_of({killed(0, 0), late, killed(2, 1)});
  CHECK(report.first_failure()->rank.value == 1);
}

TEST_CASE_METHOD(LeftWorkerTest,
                 "exit_report: a worker that could not be killed, but had not hung, is a victim",
                 "[unit][agent]") {
  ExplainedEnd failed = killed(0, 0);
  failed.exit = {.status = 3};
  failed.signalled_ms.reset();
  const ExitReport report = report_of({left(1), failed});
  CHECK(report.first_failure()->rank.value == 0);
  REQUIRE(report.failures().size() == 2);
  CHECK(report.is_victim(report.failures()[1]));
  CHECK_THAT(report.text(),
             Contains("  traceback : it did not end after SIGKILL: it is left behind\n"
                      "  stopped by muster, because rank 0 had failed\n"));
}

}  // namespace
}  // namespace muster

#include "agent/core/exit_report.h"

#include <csignal>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using Catch::Contains;
using Catch::EndsWith;

// 2026-11-21 09:08:26 UTC.
constexpr std::int64_t kSecond = 1'795'252'106;
constexpr std::int64_t kStart = (kSecond - 60) * 1000;

struct ExitReportTest {
  // Adds a worker that ended `ms` after the second above. Ends are added in the order of the
  // deaths.
  ExplainedEnd& end(int rank, std::int64_t ms) {
    ExplainedEnd one;
    one.local_rank = {rank};
    one.rank = {rank + 4};
    one.pid = 100 + rank;
    one.order = static_cast<int>(ends.size());
    one.died_ms = kSecond * 1000 + ms;
    ends.push_back(one);
    return ends.back();
  }
  ExplainedEnd& exited(int rank, int code, std::int64_t ms = 0) {
    ExplainedEnd& one = end(rank, ms);
    one.exit.status = code;
    return one;
  }
  ExplainedEnd& killed(int rank, int signal, std::int64_t ms = 0) {
    ExplainedEnd& one = end(rank, ms);
    one.exit.killed = true;
    one.exit.status = signal;
    return one;
  }
  static ExplainedEnd& told(ExplainedEnd& one, int signal) {
    one.signalled_ms = one.died_ms - 5;
    one.sent.push_back(signal);
    return one;
  }
  ExplainedEnd& victim(int rank, std::int64_t ms = 0) {
    ExplainedEnd& one = killed(rank, SIGTERM, ms);
    return told(one, SIGTERM);
  }
  ExitReport report() const {
    return ExitReport({.title = "train.py",
                       .host = "node1.example.com",
                       .utc_offset_s = 3600,
                       .started_ms = kStart},
                      ends);
  }
  int first() const { return report().first_failure()->local_rank.value; }

  std::vector<ExplainedEnd> ends;
};

void recorded(ExplainedEnd& end, std::optional<std::int64_t> second) {
  end.error_file = "/logs/error.json";
  end.error = ErrorRecord{"ValueError: boom", "Traceback:\n  File x\nValueError: boom", second, {}};
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the report is empty if no worker failed",
                 "[unit][agent]") {
  exited(0, 0);
  exited(1, 0);
  CHECK(report().first_failure() == nullptr);
  CHECK(report().failures().empty());
  CHECK(report().text().empty());
  CHECK(report().error_file("").empty());
  CHECK(nlohmann::json::parse(report().json())["first_failure"].is_null());
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the text has torchrun's layout", "[unit][agent]") {
  exited(1, 1);
  recorded(ends.back(), kSecond - 1);
  victim(0, 30);
  exited(2, 0, 40);
  CHECK(report().text() == R"(
=====================================================
train.py FAILED
-----------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_10:08:26
  host      : node1.example.com
  rank      : 4 (local_rank: 0)
  exitcode  : -15 (pid: 100)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 100
  stopped by muster, because rank 5 had failed
-----------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:08:25
  host      : node1.example.com
  rank      : 5 (local_rank: 1)
  exitcode  : 1 (pid: 101) 
  error_file: /logs/error.json
  traceback : Traceback:
    File x
  ValueError: boom
=====================================================)");
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: it says why muster ended a worker",
                 "[unit][agent]") {
  killed(0, SIGABRT);
  ends.back().ended_because = "it hung: it stood at step (train.py:7)";
  CHECK_THAT(report().text(), Contains("Signal 6 (SIGABRT) received by PID 100\n"
                                       "  it hung: it stood at step (train.py:7)\n"));
  CHECK_THAT(report().text(), !Contains("core"));
  CHECK(nlohmann::json::parse(report().json())["failures"][0]["ended_because"] ==
        "it hung: it stood at step (train.py:7)");
  ends.clear();
  killed(0, SIGKILL);
  ends.back().ended_because = "its timer ran out";
  CHECK_THAT(report().text(), Contains("PID 100\n  its timer ran out\n"));
  CHECK_THAT(report().text(), !Contains("from outside"));
  ends.back().ended_because.clear();
  CHECK(nlohmann::json::parse(report().json())["failures"][0]["ended_because"].is_null());
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: lines of a pipe for both streams are called output",
                 "[unit][agent]") {
  exited(0, 1);
  ends.back().stderr_known = ends.back().tail_is_output = true;
  CHECK_THAT(report().text(), Contains("it wrote nothing to stdout and stderr\n"));
  ends.back().stderr_tail = "loss 0.5\nboom\n";
  CHECK_THAT(report().text(), Contains("the last lines of its output:\n  loss 0.5\n  boom\n"));
  auto json = nlohmann::json::parse(report().json())["failures"][0];
  CHECK(json["output_tail"] == "loss 0.5\nboom\n");
  CHECK(json["stderr_tail"].get<std::string>().empty());
  ends.back().tail_is_output = false;
  CHECK_THAT(report().text(), Contains("the last lines of its stderr:\n"));
  json = nlohmann::json::parse(report().json())["failures"][0];
  CHECK(json["output_tail"].is_null());
  CHECK(json["stderr_tail"] == "loss 0.5\nboom\n");
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: a SIGKILL that did not increase the OOM killer's counter",
                 "[unit][agent]") {
  killed(0, SIGKILL);
  CHECK_THAT(report().text(), Contains("perhaps the OOM killer"));
  ends.back().unchanged_oom_counter = "/sys/fs/cgroup/job";
  CHECK_THAT(report().text(), Contains("somebody's kill -9; not the kernel's OOM killer") &&
                                  Contains("killed nobody in /sys/fs/cgroup/job"));
  CHECK_THAT(report().text(), !Contains("perhaps"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the frame is as wide as the widest line, at most 60",
                 "[unit][agent]") {
  exited(0, 3);
  recorded(ends.back(), std::nullopt);
  // Characters are counted, not bytes: "  error_file: " has 14, and 30 follow.
  ends.back().error_file.clear();
  for (int i = 0; i < 30; ++i)
    ends.back().error_file += "\xc3\xa9";
  const std::string text = report().text();
  CHECK_THAT(text,
             Catch::StartsWith("\n" + std::string(44, '=') + "\ntrain.py FAILED\n" +
                               std::string(44, '-') + "\nFailures:\n  <NO_OTHER_FAILURES>\n"));
  CHECK_THAT(text, EndsWith("\n" + std::string(44, '=')));
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: without other evidence the first to die is the cause",
                 "[unit][agent]") {
  exited(2, 1, 100);
  exited(0, 1, 101);
  CHECK(first() == 2);
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: an error recorded earlier was the first, if its "
                 "worker died later",
                 "[unit][agent]") {
  exited(2, 1, 100);
  recorded(exited(0, 1, 5000), kSecond - 10);
  CHECK(first() == 0);
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: within a second the order of the deaths decides",
                 "[unit][agent]") {
  exited(2, 1, 100);
  recorded(exited(0, 1, 900), kSecond);
  CHECK(first() == 2);
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: an implausible time does not decide the root cause",
                 "[unit][agent]") {
  exited(2, 1, 100);
  ExplainedEnd& other = exited(0, 1, 900);
  SECTION("older than the attempt") {
    recorded(other, kStart / 1000 - 1);
  }
  SECTION("later than the death") {
    recorded(other, kSecond + 100);
  }
  SECTION("none") {
    recorded(other, std::nullopt);
  }
  CHECK(first() == 2);
  CHECK_THAT(report().text(), !Contains("1970"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: a victim is never the cause, unless it is alone",
                 "[unit][agent]") {
  victim(0);
  CHECK(first() == 0);
  CHECK_THAT(report().text(), Contains("received by PID 100\n  stopped by muster\n"));
  exited(1, 1, 5000);
  CHECK(first() == 1);
}

TEST_CASE_METHOD(
    ExitReportTest,
    "exit_report: a worker that had recorded an error before it was stopped is no victim",
    "[unit][agent]") {
  exited(1, 1, 100);
  ExplainedEnd& slow = victim(0, 300);
  SECTION("a second before: its own failure, and the first") {
    recorded(slow, kSecond - 3);
    CHECK_FALSE(report().is_victim(report().failures()[1]));
    CHECK(first() == 0);
  }
  SECTION("in the same second: perhaps because of the signal") {
    recorded(slow, kSecond);
    CHECK(report().is_victim(report().failures()[1]));
    CHECK(first() == 1);
  }
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: a victim that exits with a code is marked, too",
                 "[unit][agent]") {
  exited(1, 1);
  told(exited(0, 143, 10), SIGTERM).can_outlive_signal = true;
  CHECK_THAT(report().text(), Contains("exitcode  : 143 (pid: 100) \n"));
  CHECK_THAT(report().text(),
             Contains("traceback : stopped by muster, because rank 5 had failed\n"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: an end that does not follow from muster's signal",
                 "[unit][agent]") {
  exited(1, 1);
  const auto is_victim = [this] { return report().is_victim(report().failures()[1]); };
  SECTION("an exit of a program that does not handle the signal: it was exiting already") {
    told(exited(0, 200, 10), SIGTERM);
    CHECK_FALSE(is_victim());
    ends.back().can_outlive_signal = true;
    CHECK(is_victim());
  }
  SECTION("a crash, whatever the program does with the signal") {
    told(killed(0, SIGSEGV, 10), SIGTERM);
    CHECK_FALSE(is_victim());
    ends.back().can_outlive_signal = true;
    CHECK_FALSE(is_victim());
  }
  SECTION("another signal: only if a handler may have chosen it") {
    told(killed(0, SIGINT, 10), SIGTERM);
    CHECK_FALSE(is_victim());
    ends.back().can_outlive_signal = true;
    CHECK(is_victim());
  }
  SECTION("a SIGKILL: only if it was muster's") {
    told(killed(0, SIGKILL, 10), SIGTERM).can_outlive_signal = true;
    CHECK_FALSE(is_victim());
    told(ends.back(), SIGKILL);
    CHECK(is_victim());
  }
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: a worker that crashed after it was signalled may be the root cause",
                 "[unit][agent]") {
  told(killed(0, SIGSEGV, 10), SIGTERM);
  exited(1, 3, 20);
  CHECK(first() == 0);
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: signals are explained", "[unit][agent]") {
  SECTION("a core that was dumped") {
    killed(0, SIGSEGV).exit.core_dumped = true;
    CHECK_THAT(report().text(), Contains("exitcode  : -11 (pid: 100)  (SIGSEGV)\n"));
    CHECK_THAT(report().text(), Contains("Signal 11 (SIGSEGV) received by PID 100\n  core dumped"));
  }
  SECTION("a core that was not") {
    killed(0, SIGABRT);
    CHECK_THAT(report().text(), Contains("no core was dumped (ulimit -c unlimited"));
  }
  SECTION("a kill -9 that was not ours") {
    killed(0, SIGKILL);
    CHECK_THAT(report().text(), Contains("SIGKILL from outside (not muster)"));
    CHECK_THAT(report().text(), Contains("perhaps the OOM killer"));
  }
  SECTION("a kill of the OOM killer") {
    killed(0, SIGKILL).oom_evidence = "the log says so";
    CHECK_THAT(report().text(),
               Contains("\n  killed by the kernel's OOM killer: the log says so\n"));
    CHECK_THAT(report().text(), !Contains("from outside"));
    CHECK_THAT(report().json(), Contains("\"oom_evidence\": \"the log says so\""));
  }
  SECTION("a signal without a name") {
    killed(0, 40);
    CHECK_THAT(report().text(), Contains("exitcode  : -40 (pid: 100) \n"));
    CHECK_THAT(report().text(), Contains("Signal 40 (<N/A>) received by PID 100"));
  }
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: without an error file the last stderr lines tell",
                 "[unit][agent]") {
  exited(0, 1).stderr_tail = "  0%\r 50%\r100%\r\nFile \"x\"\n\x1b[31mboom\x07\nlast";
  CHECK_THAT(report().text(), Contains("  traceback : the last lines of its stderr:\n"
                                       "  100%\n"
                                       "  File \"x\"\n"
                                       "  ?[31mboom?\n"
                                       "  last\n=="));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the stderr shown is bounded", "[unit][agent]") {
  ExplainedEnd& one = exited(0, 1);
  for (int i = 0; i < 100; ++i)
    one.stderr_tail += "line " + std::to_string(i) + "\n";
  CHECK_THAT(report().text(), Contains("stderr:\n  line 80\n"));
  CHECK_THAT(report().text(), !Contains("line 79"));
  one.stderr_tail = "the cause\n";
  for (int i = 0; i < 40; ++i)
    one.stderr_tail += "frame #" + std::to_string(i) + ": f() + 0x1 (0x2 in lib.so)\n";
  CHECK_THAT(report().text(), Contains("stderr:\n  the cause\n=="));
  CHECK(report().cause_of(0)->text == "the cause");
  one.stderr_tail = std::string(100'000, 'x');
  CHECK(report().text().size() < 6000);
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: if nothing is known of a failure, the report says how to learn more",
                 "[unit][agent]") {
  ExplainedEnd& one = exited(0, 1);
  CHECK_THAT(report().text(), Contains("--redirects 2 or --tee 2"));
  CHECK_THAT(report().text(), Contains("To enable traceback see: https://pytorch.org/"));
  one.stderr_known = true;
  CHECK_THAT(report().text(), Contains("it wrote nothing to stderr\n"));
  CHECK_THAT(report().text(), !Contains("--redirects 2"));
  one.stderr_file = "/logs/0/stderr.log";
  CHECK_THAT(report().text(), Contains("wrote nothing to its stderr, /logs/0/stderr.log"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: a killed worker gets no advice about tracebacks",
                 "[unit][agent]") {
  killed(0, SIGKILL);
  CHECK_THAT(report().text(), Contains("--redirects 2 or --tee 2\n=="));
  CHECK_THAT(report().text(), !Contains("To enable traceback"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: what many ranks have written is shown once",
                 "[unit][agent]") {
  const auto lines = [](int rank, const std::string& last) {
    const std::string prefix = "[rank" + std::to_string(rank) + "]: ";
    return prefix + "Traceback\n" + prefix + "  File x\n" + prefix + "  boom()\n" + prefix + last;
  };
  exited(0, 1, 1).stderr_tail = lines(4, "ValueError: boom\n");
  exited(1, 1, 2).stderr_tail = lines(5, "ValueError: boom\n");
  exited(2, 1, 3).stderr_tail = lines(6, "KeyError: other\n");
  exited(3, 1, 4).stderr_tail = lines(7, "KeyError: other\n");
  exited(4, 1, 5).stderr_tail = "short\n";
  exited(5, 1, 6).stderr_tail = "short\n";
  const std::string text = report().text();
  CHECK_THAT(text,
             Contains("(pid: 101) \n  error_file: <N/A>\n  traceback : the same as of rank 4, "
                      "below\n"));
  CHECK_THAT(text,
             Contains("(pid: 103) \n  error_file: <N/A>\n  traceback : the same as of rank 6, "
                      "above\n"));
  const auto count = [&text](const std::string& what) {
    int found = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1))
      ++found;
    return found;
  };
  CHECK(count("ValueError: boom") == 1);
  CHECK(count("KeyError: other") == 1);
  CHECK(count("short") == 2);
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: on a terminal the cause is red", "[unit][agent]") {
  ExplainedEnd& one = exited(0, 1);
  one.stderr_tail = "Traceback\nValueError: boom\n";
  one.notes = {"a note"};
  ExitReport plain = report();
  CHECK_THAT(plain.text(), !Contains("\033"));
  const ExitReport coloured({.title = "train.py", .started_ms = kStart, .coloured = true}, ends);
  CHECK_THAT(coloured.text(),
             Contains("  Traceback\n  \033[1;31mValueError: boom\033[0m\n  a note\n="));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the report names an unreadable error file",
                 "[unit][agent]") {
  ExplainedEnd& one = exited(0, 1);
  one.error_file = "/logs/error.json";
  one.error = ErrorFileDefect::Torn;
  one.stderr_tail = "boom\n";
  CHECK_THAT(report().text(), Contains("its error file cannot be read: it ends in the middle"));
  CHECK_THAT(report().text(), Contains("stderr:\n  boom\n"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: a message without a traceback is shown",
                 "[unit][agent]") {
  ExplainedEnd& one = exited(0, 1);
  one.error = ErrorRecord{"just words", "", kSecond, {}};
  CHECK_THAT(report().text(), Contains("  traceback : just words\n"));
  one.error = ErrorRecord{};  // An empty record counts as no record.
  CHECK_THAT(report().text(), Contains("To enable traceback"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the JSON has the same facts as the text",
                 "[unit][agent]") {
  ExplainedEnd& one = killed(1, SIGSEGV, 250);
  one.exit.core_dumped = true;
  one.stderr_tail = "bad \xff byte";
  recorded(victim(0, 999), kSecond);
  const auto json = nlohmann::json::parse(report().json());
  CHECK(json["title"] == "train.py");
  CHECK(json["host"] == "node1.example.com");
  CHECK(json["first_failure"] == 5);
  REQUIRE(json["failures"].size() == 2);
  const auto& cause = json["failures"][0];
  CHECK(cause["rank"] == 5);
  CHECK(cause["local_rank"] == 1);
  CHECK(cause["pid"] == 101);
  CHECK(cause["exitcode"] == -11);
  CHECK(cause["signal"] == "SIGSEGV");
  CHECK(cause["core_dumped"] == true);
  CHECK(cause["victim"] == false);
  CHECK(cause["died"] == "2026-11-21T09:08:26.250Z");
  CHECK(cause["error_file"].is_null());
  CHECK(cause["error"].is_null());
  CHECK(cause["stderr_tail"] == "bad \xef\xbf\xbd byte");
  const auto& other = json["failures"][1];
  CHECK(other["victim"] == true);
  CHECK(other["error"]["message"] == "ValueError: boom");
  CHECK(other["error"]["timestamp"] == kSecond);
  CHECK(other["error"]["error_code"].is_null());
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: a defect of an error file is in the JSON, too",
                 "[unit][agent]") {
  exited(0, 1).error = ErrorFileDefect::Empty;
  const auto json = nlohmann::json::parse(report().json());
  CHECK(json["failures"][0]["error_file_defect"] == "it is empty");
  CHECK(json["failures"][0]["signal"].is_null());
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: the agent's own error file passes the cause on",
                 "[unit][agent]") {
  exited(0, 3).stderr_tail = "boom\n";
  const auto copied = read_error_file(report().error_file(R"({"message": {"message": "m"}})"));
  REQUIRE(copied.has_value());
  CHECK(copied->message == "m");
  CHECK(copied->error_code == 3);

  const auto made = read_error_file(report().error_file(""));
  REQUIRE(made.has_value());
  CHECK(made->message == "rank 4 on node1.example.com failed (exitcode: 3)");
  CHECK_THAT(made->traceback, Contains("boom"));
  CHECK(made->timestamp_s == kSecond);
  CHECK(made->error_code == 3);
}

TEST_CASE_METHOD(
    ExitReportTest,
    "exit_report: a job that no worker's failure has ended has its cause in the report",
    "[unit][agent]") {
  victim(0);
  const ExitReport other({.title = "train.py",
                          .host = "node1",
                          .now_ms = kSecond * 1000 + 5,
                          .cause = EndCause{"signalled", "SignalException", "got signal: 15"}},
                         ends);
  const auto json = nlohmann::json::parse(other.json());
  CHECK(json["ended_by"] == "signalled");
  CHECK(json["reason"] == "got signal: 15");
  CHECK(json["first_failure"].is_null());
  CHECK(json["failures"][0]["victim"] == true);
  const auto file = read_error_file(other.error_file(R"({"message": "of a worker"})"));
  REQUIRE(file.has_value());
  CHECK(file->message == "SignalException: got signal: 15");
  CHECK(file->timestamp_s == kSecond);

  const auto own = nlohmann::json::parse(report().json());
  CHECK(own["ended_by"] == "worker_failed");
  CHECK(own["reason"].is_null());
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: the shown time is that of the error file, if it has one",
                 "[unit][agent]") {
  exited(0, 1);
  recorded(ends.back(), kSecond - 3600);  // Before the attempt: this time is ignored.
  CHECK_THAT(report().text(), Contains("time      : 2026-11-21_09:08:26\n"));
  recorded(ends.back(), std::nullopt);
  CHECK_THAT(report().text(), Contains("time      : 2026-11-21_10:08:26\n"));
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: with --run-path only the first failure is shown",
                 "[unit][agent]") {
  exited(1, 1);
  victim(0, 30);
  ReportOptions options{.title = "run_script_path", .host = "node1", .only_first = true};
  const ExitReport alone(options, ends);
  CHECK_THAT(alone.text(), Contains("Failures:\n  <NO_OTHER_FAILURES>\n"));
  CHECK_THAT(alone.text(), !Contains("local_rank: 0"));
  CHECK(nlohmann::json::parse(alone.json())["failures"].size() == 2);
}

TEST_CASE_METHOD(ExitReportTest, "exit_report: times before 1970 and in leap years are right",
                 "[unit][agent]") {
  exited(0, 1).died_ms = 1'709'164'800'000;  // 2024-02-29 00:00:00 UTC.
  CHECK_THAT(report().text(), Contains("time      : 2024-02-29_01:00:00\n"));
  ends.back().died_ms = -1;
  CHECK_THAT(report().text(), Contains("time      : 1970-01-01_00:59:59\n"));
  CHECK_THAT(report().json(), Contains("1969-12-31T23:59:59.999Z"));
}

TEST_CASE_METHOD(ExitReportTest,
                 "exit_report: if the clock was set, the order of the deaths decides",
                 "[unit][agent]") {
  constexpr std::int64_t kBack = -30'000;
  exited(0, 1).clock.add(0);
  recorded(told(exited(1, 1, kBack), SIGTERM), kSecond - 35);
  ends.back().can_outlive_signal = true;
  ends.back().signalled_ms = kSecond * 1000;
  ends.back().clock.add(0);
  CHECK(first() == 1);  // As far as the offsets tell, it had failed long before.
  ends.back().clock.add(kBack);
  CHECK(first() == 0);
  CHECK(report().is_victim(ends.back()));
  ends.back().signalled_ms.reset();
  CHECK(first() == 0);
}

}  // namespace
}  // namespace muster

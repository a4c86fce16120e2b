#include "musterctl/rank_output.h"

#include <chrono>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "musterctl/patience.h"
#include "musterctl/run_text.h"
#include "rendezvous/http/run_view_json.h"

namespace muster::ctl::testing {

using Catch::Contains;
using namespace std::chrono_literals;

TEST_CASE("musterctl logs: musterd's answer with a piece of a log", "[unit][musterctl]") {
  NodeAnswered answer;
  answer.bytes = std::string("a\0b\xff\n", 5);
  answer.offset = 95;
  answer.size = 200;
  answer.attempt = 3;
  const auto piece = parse_piece(answer_json(answer));
  REQUIRE(piece.has_value());
  CHECK(piece->bytes == answer.bytes);
  CHECK(piece->offset == 95);
  CHECK(piece->next_offset == 100);
  CHECK(piece->size == 200);
  CHECK(piece->attempt == 3);
  CHECK(piece->node.empty());
  answer.node = "b_2_0";
  CHECK(parse_piece(answer_json(answer))->node == "b_2_0");
  // An older musterd does not name the node.
  CHECK(parse_piece(R"({"base64":"","offset":5,"next_offset":5,"size":5,"attempt":1})")
            ->node.empty());
  for (const char* bad :
       {"", "[]", "{}", R"({"base64":"!","offset":0,"next_offset":0,"attempt":0})",
        R"({"base64":"","offset":5,"next_offset":4,"attempt":0})",
        R"({"base64":"","offset":"x","next_offset":4,"attempt":0})"})
    CHECK_FALSE(parse_piece(bad).has_value());
}

TEST_CASE("musterctl logs: the lines at the end of a followed run", "[unit][musterctl]") {
  RunView view;
  view.summary.id = "job";
  view.summary.round = 7;
  view.summary.first_failure = RunEvent{.kind = RunEvent::Kind::RoundRestarts, .number = 4};
  FailureReport report{.round = 7, .rank = 3, .exit = "exited with 1"};
  report.stderr_end = "  File \"x.py\"\nValueError: boom\n";
  view.first_failure_report = report;
  OutputRequest request{.run = "job", .rank = 3, .from_stderr = true};
  const std::string missing =
      "--- the last lines of rank 3 may be missing here: they are in the log file on its node "
      "---\n";
  SECTION("the node has reported the last lines of its failed worker") {
    const std::string reported =
        "--- the last lines of rank 3 as its node has reported them ---\n" + report.stderr_end;
    CHECK(end_text(run_json(view), request, "step 17\n") == reported);
    CHECK(end_text(run_json(view), request, "") == reported);
  }
  SECTION("they have been shown already") {
    CHECK(end_text(run_json(view), request, "Traceback\n" + report.stderr_end).empty());
  }
  SECTION("the report is about another stream, rank or round") {
    request.from_stderr = false;
    CHECK(end_text(run_json(view), request, "") == missing);
    request.from_stderr = true;
    view.first_failure_report->rank = 2;
    CHECK(end_text(run_json(view), request, "") == missing);
    view.first_failure_report->rank = 3;
    view.first_failure_report->round = 6;
    CHECK(end_text(run_json(view), request, "") == missing);
  }
  SECTION("there is no report, or musterd does not answer") {
    view.first_failure_report.reset();
    CHECK(end_text(run_json(view), request, "") == missing);
    for (const char* answer : {"", "[]", "{}", R"({"first_failure_report": {"rank": "x"}})"})
      CHECK(end_text(answer, request, "") == missing);
  }
  SECTION("control characters do not reach a terminal") {
    request.on_terminal = true;
    view.first_failure_report->stderr_end = "10%\r20%\n\x1b[31mboom\n";
    CHECK_THAT(end_text(run_json(view), request, ""), Contains("\n10%\n20%\n\\x1b[31mboom\n"));
    CHECK(end_text(run_json(view), request, "step\n10%\n20%\n\\x1b[31mboom\n").empty());
  }
}

TEST_CASE("musterctl: a command that follows waits some seconds for musterd", "[unit][musterctl]") {
  using std::chrono::seconds;
  Patience patience;
  Patience::Time now{};
  CHECK_FALSE(patience.is_away());
  CHECK(patience.lasts(now));
  CHECK(patience.is_away());
  CHECK(patience.lasts(now += Patience::kMax - seconds(1)));
  CHECK_FALSE(patience.lasts(now += seconds(1)));
  patience.answered();
  CHECK_FALSE(patience.is_away());
  CHECK(patience.lasts(now));
}

TEST_CASE("musterctl logs: the end of a log begins with a whole line", "[unit][musterctl]") {
  CHECK(whole_lines("cut\none\ntwo\n") == "one\ntwo\n");
  CHECK(whole_lines("cut\r\none\r\n") == "one\r\n");
  CHECK(whole_lines("10%\r20%\r100%\n") == "20%\r100%\n");
  // Nothing else is there to be shown.
  for (const char* line : {"", "cut", "cut\n", "cut\r", "cut\r\n"})
    CHECK(whole_lines(line) == line);
}

TEST_CASE("rank output: the beginning of the last lines", "[unit][musterctl]") {
  const std::string_view text = "cut\none\ntwo\nunfinished";
  CHECK(begin_of_last_lines(text, 0) == text.size());
  CHECK(begin_of_last_lines(text, 1) == text.find("unfinished"));
  CHECK(begin_of_last_lines(text, 2) == text.find("two"));
  CHECK(begin_of_last_lines(text, 3) == text.find("one"));
  CHECK(!begin_of_last_lines(text, 4));
  CHECK(!begin_of_last_lines(text, 1000000000));
  CHECK(begin_of_last_lines("one\ntwo\n", 0) == 8U);
  CHECK(begin_of_last_lines("one\ntwo\n", 1) == 4U);
  CHECK(!begin_of_last_lines("one\ntwo\n", 2));
  CHECK(begin_of_last_lines("\n\n\n", 2) == 1U);
  CHECK(begin_of_last_lines("", 0) == 0U);
  CHECK(!begin_of_last_lines("", 1));
}

TEST_CASE("musterctl stacks: which ranks are asked, and how many are left out",
          "[unit][musterctl]") {
  const auto node = [](int first, int count) {
    return "{\"first_rank\":" + std::to_string(first) +
           ",\"local_world_size\":" + std::to_string(count) + "}";
  };
  const auto of = [](const std::string& nodes) {
    return ranks_to_ask("{\"nodes\":[" + nodes + "]}");
  };
  CHECK(of(node(2, 2) + ",{}," + node(0, 2)).ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(of(node(0, 256)).left_out == 0);
  const RanksAsked asked = of(node(300, 8) + "," + node(200, 100) + "," + node(0, 200));
  CHECK(asked.ranks.size() == kMaxRanksAsked);
  CHECK(asked.ranks.back() == 255);
  CHECK(asked.first_left_out == 256);
  CHECK(asked.left_out == 52);
  CHECK(ranks_to_ask("[]").ranks.empty());
}

TEST_CASE("musterctl why: the node's report about its failed worker", "[unit][musterctl]") {
  RunView view;
  RunEvent failed{.kind = RunEvent::Kind::RoundRestarts, .number = 4};
  failed.node = "b_2_0";
  view.summary.id = "job";
  view.summary.first_failure = failed;
  view.first_failure_report = FailureReport{.round = 0,
                                            .local_rank = 1,
                                            .rank = 3,
                                            .pid = 4711,
                                            .exit = "exited with 3",
                                            .message = "ValueError: boom",
                                            .stderr_end = "Traceback\n  \x1b[31mboom \"x\"\n"};
  for (const Text& text : {why_text(run_json(view)), status_text(run_json(view))}) {
    REQUIRE(text.has_value());
    CHECK_THAT(*text, Contains("  rank 3 (local rank 1, pid 4711) exited with 3\n"));
    CHECK_THAT(*text, Contains("  its error\n    ValueError: boom\n"));
    CHECK_THAT(*text, Contains("  its last lines on stderr\n    Traceback\n"));
    CHECK_THAT(*text, Contains("boom \"x\"\n"));
    CHECK_THAT(*text, !Contains("\x1b"));
    CHECK_THAT(*text, !Contains("muster says"));
  }
}

TEST_CASE("musterctl why: a line of stderr keeps its backslashes and quotes", "[unit][musterctl]") {
  RunView view;
  view.summary.id = "job";
  view.summary.first_failure = RunEvent{.kind = RunEvent::Kind::RoundRestarts, .number = 4};
  view.first_failure_report = FailureReport{
      .exit = "exited with 1", .stderr_end = "re.compile(\"\\x1b\\d+\") \\\\ \x1b[0m \\\"\n"};
  CHECK_THAT(*why_text(run_json(view)),
             Contains("    re.compile(\"\\x1b\\d+\") \\\\ \\x1b[0m \\\"\n"));
}

TEST_CASE("musterctl nodes: the workers' states, and the lowest step", "[unit][musterctl]") {
  RunView view;
  view.now = Instant{1h};
  NodeReport report{.round = 0, .starts = 2, .workers = 2};
  report.listed = {{.local_rank = 0, .state = WorkerReport::State::Running, .pid = 5, .step = 17},
                   {.local_rank = 1, .state = WorkerReport::State::Running, .pid = 6, .step = 12}};
  NodeView node{.name = {"a", 1, 0}, .state = NodeState::Working, .native = true, .group_rank = 0};
  node.report = std::make_shared<const ReportView>(ReportView{report, view.now - 1s});
  view.nodes = {node};
  view.summary.nodes = 1;
  const Text text = nodes_text(nodes_json(view));
  REQUIRE(text.has_value());
  CHECK_THAT(*text, Contains("2 running  2       12"));
}

}  // namespace muster::ctl::testing

#include "musterctl/rank_output.h"

#include <string>

#include <catch2/catch.hpp>

#include "musterctl/run_text.h"
#include "rendezvous/wire/run_view_json.h"

namespace muster::ctl::testing {

using Catch::Contains;
using namespace std::chrono_literals;

TEST_CASE("musterctl logs: a piece as musterd tells it", "[unit][musterctl]") {
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
  for (const char* bad :
       {"", "[]", "{}", R"({"base64":"!","offset":0,"next_offset":0,"attempt":0})",
        R"({"base64":"","offset":5,"next_offset":4,"attempt":0})",
        R"({"base64":"","offset":"x","next_offset":4,"attempt":0})"})
    CHECK_FALSE(parse_piece(bad).has_value());
}

TEST_CASE("musterctl why: what the node has told of its failed worker", "[unit][musterctl]") {
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

TEST_CASE("musterctl nodes: how the workers are, and the step of the one that is behind",
          "[unit][musterctl]") {
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

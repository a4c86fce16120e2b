#include "musterctl/run_text.h"

#include <cstring>
#include <string>

#include <catch2/catch.hpp>

#include "musterctl/answer_json.h"
#include "rendezvous/http/run_view_json.h"

namespace muster::ctl::testing {

using Catch::Contains;
using namespace std::chrono_literals;

// A run as musterd itself reports it.
RunView failed_run() {
  RunView view;
  view.now = Instant{1h};
  view.wall = {1'700'000'000'000'000};
  RunSummary& run = view.summary;
  run.id = "job";
  run.state = RunStanding::Restarting;
  run.reason = "round 1: 1 of 2 nodes have joined";
  run.round = 1;
  run.generation = 12;
  run.restarts_used = 1;
  run.restarts_allowed = 3;
  run.min_nodes = run.max_nodes = 2;
  run.nodes = run.nodes_in_round = 1;
  RunEvent failure{.kind = RunEvent::Kind::RoundRestarts, .number = 4, .at = view.now - 5s};
  failure.node = "b_2_0";
  failure.rank = 1;
  failure.cause = RestartCause::WorkersFailed;
  failure.text = "rank 3 exited with 1";
  RunEvent lost{.kind = RunEvent::Kind::NodeLost, .number = 5, .at = view.now - 3s};
  lost.node = "c_3_0";
  lost.text = "its connection closed";
  lost.like = 7;
  run.first_failure = failure;
  view.events = {failure, lost};
  view.missing.push_back({{"c", 3, 0}, 2, false, "its connection closed", 3s});
  view.missing.push_back({{"b", 2, 0}, 1, true, "", {}});
  view.missing_total = 2;
  view.lacking = 1;
  return view;
}

TEST_CASE("musterctl why: the first failure, what followed, and what is missing now",
          "[unit][musterctl]") {
  const Text text = why_text(run_json(failed_run()));
  REQUIRE(text.has_value());
  CHECK_THAT(*text, Contains("job: node 1 (b_2_0) failed first\n"));
  CHECK_THAT(*text, Contains("2023-11-14T22:13:15.000Z, round 0: rank 3 exited with 1\n"));
  CHECK_THAT(*text, Contains("node lost"));
  CHECK_THAT(*text, Contains("(and 7 more of this kind)"));
  CHECK_THAT(*text, Contains("node 2 (c_3_0) is gone for 3.0 s: its connection closed\n"));
  CHECK_THAT(*text, Contains("node 1 (b_2_0) is alive and about to come back\n"));
  CHECK_THAT(*text, Contains("1 more node must come\n"));
}

TEST_CASE("musterctl why: a run without a failure says so", "[unit][musterctl]") {
  RunView view = failed_run();
  view.summary.first_failure.reset();
  view.summary.restarts_used = 0;
  CHECK_THAT(*why_text(run_json(view)), Contains("job: nothing has failed since the run began"));
}

// A run as a musterd reports it that was started again after the run had failed.
RunView remembered_run() {
  RunView view = failed_run();
  view.summary.first_failure.reset();
  view.summary.state = RunStanding::Failed;
  view.summary.reason = "ended: rank 3 exited with 1";
  view.events.clear();
  view.missing.clear();
  view.missing_total = 0;
  view.outcome = RunEnded{{}, false, NodeName{"b", 2, 0}, "rank 3 exited with 1"};
  return view;
}

TEST_CASE("musterctl why: a restarted musterd tells how the run ended", "[unit][musterctl]") {
  RunView view = remembered_run();
  const Text text = why_text(run_json(view));
  CHECK_THAT(*text, Contains("job: node b_2_0 ended the run: rank 3 exited with 1\n"));
  CHECK_THAT(*text, Contains("It does not keep earlier events"));
  CHECK_THAT(*text, !Contains("nothing has failed"));
  view.outcome->who.reset();
  view.outcome->why = "an operator has stopped it";
  CHECK_THAT(*why_text(run_json(view)),
             Contains("job: the run has failed: an operator has stopped it\n"));
}

TEST_CASE("musterctl why: how the run before ended that had the same id", "[unit][musterctl]") {
  RunView view = failed_run();
  CHECK_THAT(*why_text(run_json(view)), !Contains("the run before"));
  view.previous = PreviousRun{.succeeded = false, .why = "rank 7 exited with 9"};
  CHECK_THAT(*why_text(run_json(view)),
             Contains("\nthe run before, of the same id\n  failed: rank 7 exited with 9\n"));
  view.previous->ended_at_ms = 1'699'999'940'000;
  view.previous->first_failure = RecordedFailure{
      .at_ms = 1'699'999'900'000, .node = "b_2_0", .rank = 1, .text = "rank 7 exited with 9"};
  view.previous->failure_report =
      FailureReport{.rank = 7, .exit = "exited with 9", .stderr_end = "KeyError: 'x'\n"};
  view.summary.first_failure.reset();
  const Text text = why_text(run_json(view));
  CHECK_THAT(*text, Contains("  failed 1 min 0 s ago, 2023-11-14T22:12:20.000Z: rank 7 exited"));
  CHECK_THAT(*text, Contains("first failure: 2023-11-14T22:11:40.000Z  node 1 (b_2_0)  rank 7"));
  CHECK_THAT(*text, Contains("    KeyError: 'x'\n"));
}

TEST_CASE("musterctl why: a run that goes on after musterd was started again",
          "[unit][musterctl]") {
  RunView view = failed_run();
  view.summary.first_failure.reset();
  CHECK_THAT(*why_text(run_json(view)), Contains("nothing has failed since musterd was started"));
}

TEST_CASE("musterctl: since when a run is there, and how many nodes it lacks",
          "[unit][musterctl]") {
  RunView view = failed_run();
  CHECK_THAT(*status_text(run_json(view)), !Contains("began"));  // Of an older musterd.
  view.summary.began_before = 3h + 2min;
  CHECK_THAT(*status_text(run_json(view)),
             Contains("began 3 h 2 min ago, 2023-11-14T19:11:20.000Z\n"));
  view.summary.state = RunStanding::Running;
  view.summary.up_for = 90s;
  CHECK_THAT(*status_text(run_json(view)), Contains("Z; workers run for 1 min 30 s\n"));
  RunsView all;
  all.runs.push_back(view.summary);
  all.total = 1;
  CHECK_THAT(*runs_text(runs_json(all)), Contains("  3 h 2 min  1      1/2    1/3  "));
  all.runs[0].state = RunStanding::Failed;
  all.runs[0].began_before.reset();
  CHECK_THAT(*runs_text(runs_json(all)), Contains("  failed  -    1      -      1/3  "));
}

TEST_CASE("musterctl runs: a restarted musterd tells how a run ended", "[unit][musterctl]") {
  RunsView view;
  view.runs.push_back(remembered_run().summary);
  view.total = 1;
  CHECK_THAT(*runs_text(runs_json(view)), Contains("1/3       ended: rank 3 exited with 1\n"));
}

TEST_CASE("musterctl why: a stopped run has no failed node", "[unit][musterctl]") {
  RunView view = failed_run();
  RunEvent& stopped = *view.summary.first_failure;
  stopped.kind = RunEvent::Kind::Failed;
  stopped.node.clear();
  stopped.rank.reset();
  stopped.cause.reset();
  stopped.text = "an operator has stopped it";
  const Text text = why_text(run_json(view));
  CHECK_THAT(*text, Contains("job: no node failed: the run was ended\n"));
  CHECK_THAT(*text, Contains("round 0: an operator has stopped it\n"));
  CHECK_THAT(*text, !Contains("a node failed") && !Contains("The worker's own words"));
}

TEST_CASE("musterctl why: only for a failed worker it refers to the log", "[unit][musterctl]") {
  RunView view = failed_run();
  CHECK_THAT(*why_text(run_json(view)), Contains("The worker's own words are not known here"));
  RunEvent& failure = *view.summary.first_failure;
  failure.kind = RunEvent::Kind::NodeLost;
  failure.cause.reset();
  CHECK_THAT(*why_text(run_json(view)), !Contains("The worker's own words"));
  failure.kind = RunEvent::Kind::Failed;
  CHECK_THAT(*why_text(run_json(view)), Contains("The worker's own words are not known here"));
}

TEST_CASE("musterctl why: a number that is no integer is refused", "[unit][musterctl]") {
  for (const char* field : {"number", "missing_total"}) {
    std::string json = run_json(failed_run());
    const std::size_t at = json.find(std::string("\"") + field + "\":") + std::strlen(field) + 3;
    json.replace(at, json.find_first_of(",}", at) - at, "1e300");
    CHECK(!why_text(json).has_value());
  }
}

TEST_CASE("musterctl status: state, counts and history", "[unit][musterctl]") {
  const Text text = status_text(run_json(failed_run()));
  REQUIRE(text.has_value());
  CHECK_THAT(*text, Contains("job  restarting\n"));
  CHECK_THAT(*text, Contains("restarts    1/3\n"));
  CHECK_THAT(*text, Contains("generation  12\n"));
  CHECK_THAT(*text, Contains("round restarts  round 0  workers failed  node 1 (b_2_0)"));
}

TEST_CASE("musterctl status --watch: the last events, the newest first, before a failure's report",
          "[unit][musterctl]") {
  RunView view = failed_run();
  for (std::uint64_t number = 6; number < 12; ++number) {
    RunEvent more = view.events[1];
    more.number = number;
    more.text = "event " + std::to_string(number);
    view.events.push_back(more);
  }
  const std::string text = *watched_status_text(run_json(view));
  CHECK_THAT(text, Contains("job  restarting\n"));
  CHECK(text.find("event 11") < text.find("event 10"));
  CHECK_THAT(text, Contains("event 7") && !Contains("event 6"));
  CHECK(text.find("event 7") < text.find("first failure"));
  CHECK_THAT(text, Contains("rank 3 exited with 1"));
}

TEST_CASE("musterctl: which budget of restarts is used up, and attempts without progress",
          "[unit][musterctl]") {
  RunView view = failed_run();
  CHECK_THAT(*status_text(run_json(view)), !Contains("budget") && !Contains("progress"));
  view.summary.budgets = RestartBudgets{.failures = 3, .policy = {.on = true, .hangs = 1}};
  view.summary.costs = {.failures = 2, .hangs = 1, .without_progress = 2};
  for (const Text& text : {status_text(run_json(view)), why_text(run_json(view))}) {
    CHECK_THAT(*text, Contains("budgets of --restart-policy: failures 2/3, hangs 1/1 (used up)\n"));
    CHECK_THAT(*text, Contains("attempts in a row that ended before any progress: 2\n"));
  }
}

TEST_CASE("musterctl runs: a line for each run, and a text for no runs", "[unit][musterctl]") {
  RunsView view;
  CHECK(*runs_text(runs_json(view)) == "this musterd has no runs: no job has met here yet\n");
  view.runs.push_back(failed_run().summary);
  view.total = 9;
  const Text text = runs_text(runs_json(view));
  CHECK_THAT(*text, Contains("job  restarting  -    1      1/2    1/3       rank 3 exited"));
  CHECK_THAT(*text, Contains("1 of 9 runs\n"));
}

TEST_CASE("musterctl runs: what needs attention comes first, and ended runs last",
          "[unit][musterctl]") {
  const auto run = [](const std::string& id, RunStanding state,
                      std::optional<Duration> ended = {}) {
    RunSummary summary = failed_run().summary;
    summary.id = id;
    summary.state = state;
    summary.ended_before = ended;
    return summary;
  };
  RunsView view;
  view.runs = {run("a-old", RunStanding::Failed, 3h), run("b-new", RunStanding::Succeeded, 2s),
               run("c-well", RunStanding::Running), run("d-waits", RunStanding::Restarting)};
  view.total = 4;
  const std::string text = *runs_text(runs_json(view));
  CHECK(text.find("d-waits") < text.find("c-well"));
  CHECK(text.find("c-well") < text.find("b-new"));
  CHECK(text.find("b-new") < text.find("a-old"));
  CHECK_THAT(text, Contains("(ended 2.0 s ago)\n") && Contains("(ended 3"));
  CHECK(only_run(runs_json(view))->id.empty());
  view.runs.pop_back();
  view.total = 3;
  CHECK(only_run(runs_json(view))->id == "c-well");
  view.runs.erase(view.runs.begin() + 1, view.runs.end());
  view.total = 1;
  CHECK(only_run(runs_json(view))->id == "a-old");
}

TEST_CASE("musterctl: the only run, where there is exactly one", "[unit][musterctl]") {
  RunsView view;
  CHECK(only_run(runs_json(view))->total == 0);
  view.runs.push_back(failed_run().summary);
  view.total = 1;
  CHECK(only_run(runs_json(view))->id == "job");
  view.total = 2;  // The total counts, even if the list is shorter.
  CHECK(only_run(runs_json(view))->id.empty());
  CHECK_FALSE(only_run("{}").has_value());
}

TEST_CASE("musterctl nodes: by rank, with the global ranks of their workers", "[unit][musterctl]") {
  RunView view = failed_run();
  view.nodes.push_back({.name = {"spare", 9, 0}, .state = NodeState::Spare, .native = true});
  view.nodes.push_back({.name = {"b", 2, 0},
                        .state = NodeState::Absent,
                        .native = true,
                        .group_rank = 1,
                        .first_rank = 8,
                        .local_world = 8,
                        .absent = 2s});
  view.nodes.push_back({.name = {"a", 1, 0},
                        .state = NodeState::Working,
                        .native = false,
                        .group_rank = 0,
                        .silent = 1500ms});
  const Text text = nodes_text(nodes_json(view));
  REQUIRE(text.has_value());
  CHECK_THAT(*text, Contains("0     -      working"));
  CHECK_THAT(*text, Contains("1     8-15   absent for 2.0 s"));
  CHECK_THAT(*text, Contains("1.5 s"));
  CHECK(text->find("torchrun") < text->find("spare"));
}

TEST_CASE("musterctl: a notice, who has saved, and what follows", "[unit][musterctl]") {
  RunView view = failed_run();
  CHECK_THAT(*status_text(run_json(view)), !Contains("notice"));
  view.summary.first_failure.reset();
  view.summary.restarts_used = 0;
  view.notice = NoticeView{.first = {90s, 1'700'000'090'000, "spot"},
                           .stops = false,
                           .doomed = {{"b", 2, 0}},
                           .doomed_total = 2,
                           .saved = 1,
                           .silent = {{"a", 1, 0}, {"b", 2, 0}},
                           .silent_total = 2};
  const std::string lines =
      "notice: spot; its deadline is in 1 min 30 s, at 2023-11-14T22:14:50.000Z\n"
      "  will go: b_2_0 and 1 more\n"
      "  have saved: 1 nodes\n"
      "  have not saved yet: a_1_0, b_2_0\n"
      "  then: the round restarts without the nodes that go\n";
  CHECK_THAT(*status_text(run_json(view)), Contains(lines));
  CHECK_THAT(*why_text(run_json(view)), Contains(lines));
  view.notice->stops = true;
  CHECK_THAT(*why_text(run_json(view)), Contains("  then: the job is stopped\n"));
  view.nodes.push_back({.name = {"b", 2, 0},
                        .state = NodeState::Working,
                        .native = true,
                        .notice = DoomView{90s, 0, "spot"},
                        .saved = false});
  view.nodes.push_back(
      {.name = {"a", 1, 0}, .state = NodeState::Working, .native = true, .saved = true});
  const Text nodes = nodes_text(nodes_json(view));
  CHECK_THAT(*nodes, Contains(" working, goes in 1 min 30 s, has not saved yet "));
  CHECK_THAT(*nodes, Contains(" working, has saved "));
}

TEST_CASE("musterctl why: a run that was stopped for a notice has not failed",
          "[unit][musterctl]") {
  RunView view = failed_run();
  view.summary.first_failure.reset();
  view.summary.state = RunStanding::Preempted;
  view.outcome = RunEnded{.succeeded = false, .why = "node b_2_0 will go", .preempted = true};
  CHECK(*why_text(run_json(view)) == "job: nothing has failed: node b_2_0 will go\n");
}

TEST_CASE("musterctl: the nodes that are kept out, and the strikes of hosts", "[unit][musterctl]") {
  RunView view = failed_run();
  CHECK_THAT(*status_text(run_json(view)), !Contains("kept out") && !Contains("strikes"));
  view.kept_out = {{"node9", KeptOutHow::Drained}};
  view.strikes = {{"a", {2, 1}}, {"b", {0, 1}}, {"c", {1, 0}}};
  const Text status = status_text(run_json(view));
  CHECK_THAT(*status, Contains("kept out by an operator (musterctl allow lets in again)\n"
                               "  node9  drained\n"));
  CHECK_THAT(*status, Contains("strikes by host\n  a  2 failures, 1 loss\n  b  1 loss\n"
                               "  c  1 failure\n"));
  view.nodes.push_back({.name = {"a", 1, 0},
                        .state = NodeState::Working,
                        .native = true,
                        .kept_out = KeptOutHow::Drained,
                        .strikes = {0, 2}});
  view.nodes.push_back({.name = {"b", 2, 0},
                        .state = NodeState::KeptOut,
                        .native = true,
                        .kept_out = KeptOutHow::Excluded});
  const Text nodes = nodes_text(nodes_json(view));
  CHECK_THAT(*nodes, Contains(" working, drained ") && Contains(" 2 losses "));
  CHECK_THAT(*nodes, Contains(" kept_out ") && !Contains("excluded"));
}

TEST_CASE("musterctl: the lines that follow a change", "[unit][musterctl]") {
  CHECK(*done_text("job: a: ", "{\"ok\":true,\"text\":\"done\\nwarning: \\u001b[2J\"}") ==
        "job: a: done\nwarning: \\x1b[2J\n");
  CHECK(*done_text("job: a: done", "{\"ok\":true}") == "job: a: done\n");
  CHECK_FALSE(done_text("", "[]").has_value());
}

TEST_CASE("musterctl: control characters of a node's text do not reach the terminal",
          "[unit][musterctl]") {
  RunView view = failed_run();
  view.summary.first_failure->text = "x\x1b[2J\ny";
  view.summary.id = "\x1b]0;title\a";
  const Text text = why_text(run_json(view));
  CHECK(text->find('\x1b') == std::string::npos);
  CHECK(text->find('\a') == std::string::npos);
  CHECK_THAT(*text, Contains("x\\x1B[2J\\x0Ay") || Contains("x\\x1b[2J\\x0ay"));
}

TEST_CASE("musterctl: an answer of another program is an error, not a crash", "[unit][musterctl]") {
  for (const char* json :
       {"", "[]", "{}", "null", "{\"runs\": 3}", "{\"id\": \"x\"}", "not JSON"}) {
    CHECK_FALSE(runs_text(json).has_value());
    CHECK_FALSE(status_text(json).has_value());
    CHECK_FALSE(why_text(json).has_value());
    CHECK_FALSE(nodes_text(json).has_value());
  }
  const std::string error = "{\"error\":{\"code\":\"x\",\"message\":\"no such run\"}}";
  CHECK(error_text({.status = 404, .body = error}) == "no such run");
  CHECK(error_text({.status = 404, .body = "<html>"}) == "<html>");
  CHECK(musterd_error(error) == "no such run");
  CHECK_FALSE(musterd_error("<html>"));
  CHECK_THAT(error_text({.status = 401, .body = error, .token_refused = true}),
             Contains("refuses the token"));
}

TEST_CASE("musterctl: JSON that nests too deep is discarded", "[unit][musterctl]") {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  CHECK(parse_json(nested(kAnswerLimits.depth)).is_array());
  CHECK(parse_json(nested(kAnswerLimits.depth + 1)).is_discarded());
  CHECK(parse_json("[0,1,").is_discarded());
}

TEST_CASE("musterctl: a very long cell does not widen the other rows", "[unit][musterctl]") {
  const std::string table = table_text({{"a", "b"}, {std::string(1'000, 'x'), "c"}, {"d", "e"}});
  CHECK(table == "a" + std::string(101, ' ') + "b\n" + std::string(1'000, 'x') + "  c\n" + "d" +
                     std::string(101, ' ') + "e\n");
}

TEST_CASE("musterctl: durations are short", "[unit][musterctl]") {
  CHECK(duration_text(0.25) == "0.2 s");
  CHECK(duration_text(65) == "1 min 5 s");
  CHECK(duration_text(3 * 3600 + 120) == "3 h 2 min");
  CHECK(duration_text(50 * 3600) == "2 d 2 h");
}

}  // namespace muster::ctl::testing

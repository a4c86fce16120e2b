#include "rendezvous/rounds/run_view.h"

#include <algorithm>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/http/run_view_json.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {

using namespace std::chrono_literals;
using nlohmann::json;

struct RunViewTest : RunServiceTest {
  RunView view(const std::string& id = "job") {
    auto found = service->view_run(id, {0, kMaxViewedNodes}, at());
    REQUIRE(found);
    return *found;
  }
  std::vector<RunEvent::Kind> kinds() {
    std::vector<RunEvent::Kind> kinds;
    for (const RunEvent& event : view().events)
      kinds.push_back(event.kind);
    return kinds;
  }
};

TEST_CASE_METHOD(RunViewTest,
                 "run view: the nodes that have joined, and the number that is missing",
                 "[unit][rendezvous]") {
  CHECK_FALSE(service->view_run("job", {}, at()));
  hello(1);
  CHECK(view().summary.state == RunStanding::Empty);
  join(1, 3);
  at(2s);
  const RunView shown = view();
  CHECK(shown.summary.state == RunStanding::Gathering);
  CHECK(shown.summary.min_nodes == 3);
  CHECK(shown.summary.restarts_allowed == 1);
  CHECK(shown.lacking == 2);
  REQUIRE(shown.nodes.size() == 1);
  CHECK(shown.nodes[0].state == NodeState::Joined);
  CHECK(shown.nodes[0].native);
  CHECK(shown.nodes[0].silent == Duration(2s));
  CHECK_FALSE(shown.nodes[0].group_rank);
}

TEST_CASE_METHOD(RunViewTest,
                 "run view: since when the run is there, and since when its workers run",
                 "[unit][rendezvous]") {
  hello(1);
  CHECK_FALSE(view().summary.began_before);
  join(1, 2);
  at(30s);
  CHECK(view().summary.began_before == 30s);
  CHECK_FALSE(view().summary.up_for);
  hello(2);
  join(2, 2);
  tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
  at(5min);
  // Nothing has happened at the host since then: the age is that of the view.
  CHECK(view().summary.began_before == 5min + 30s);
  CHECK(view().summary.up_for == 5min);
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  CHECK_FALSE(view().summary.up_for);
  CHECK(view().summary.began_before == 5min + 30s);
  const json shown = json::parse(run_json(view()));
  CHECK(shown.at("began_seconds") == 330.0);
  CHECK(shown.at("up_seconds").is_null());
  CHECK(shown.at("began_at").get<std::string>().size() == 24);
}

TEST_CASE_METHOD(RunViewTest, "run view: a node that asks twice for one round has joined it once",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  join(1, 2, 0);
  join(1, 2, 0);  // The node was told of the restart meanwhile.
  join(2, 2, 0);
  const auto all = kinds();
  CHECK(std::count(all.begin(), all.end(), RunEvent::Kind::NodeJoined) == 2 + 2);
}

TEST_CASE_METHOD(RunViewTest, "run view: a lost node was lost in the round that it was in",
                 "[unit][rendezvous]") {
  two_in_a_round();
  service->disconnect({2}, at());
  RunEvent lost;
  for (const RunEvent& event : view().events)
    if (event.kind == RunEvent::Kind::NodeLost) lost = event;
  CHECK(lost.node == "host2_2_0");
  CHECK(lost.round == 0);
  CHECK(view().summary.first_failure->round == 0);
}

TEST_CASE_METHOD(RunViewTest,
                 "run view: a round with its ranks, then with a node that has finished",
                 "[unit][rendezvous]") {
  two_in_a_round();
  RunView shown = view();
  CHECK(shown.summary.state == RunStanding::Running);
  CHECK(shown.summary.generation > 0);
  CHECK(shown.summary.nodes_in_round == 2);
  CHECK(shown.nodes[1].state == NodeState::Working);
  CHECK(shown.nodes[1].group_rank == 1);
  CHECK(shown.nodes[1].first_rank == 1);
  CHECK(shown.missing.empty());
  tell(1, NodeFinished{{}, 0, true, ""});
  CHECK(view().nodes[0].state == NodeState::Finished);
  tell(2, NodeFinished{{}, 0, true, ""});
  shown = view();
  CHECK(shown.summary.state == RunStanding::Succeeded);
  CHECK(shown.outcome->succeeded);
  CHECK_FALSE(shown.summary.first_failure);
}

TEST_CASE_METHOD(RunViewTest, "run view: a failure, who is missing since when, and the recovery",
                 "[unit][rendezvous]") {
  two_in_a_round();
  at(10s);
  tell(2, WorkersFailed{{}, 0, "rank 1 exited with 3"});
  RunView shown = view();
  CHECK(shown.summary.state == RunStanding::Restarting);
  CHECK(shown.summary.restarts_used == 1);
  REQUIRE(shown.summary.first_failure);
  CHECK(shown.summary.first_failure->node == "host2_2_0");
  CHECK(shown.summary.first_failure->rank == 1);
  CHECK(shown.summary.first_failure->text == "rank 1 exited with 3");
  CHECK(shown.missing.size() == 2);
  CHECK(shown.missing[0].expected);
  join(1, 2, 0);
  service->disconnect({2}, at());
  service->time_passed(at(1s));
  at(3s);
  shown = view();
  REQUIRE(shown.missing.size() == 1);
  CHECK_FALSE(shown.missing[0].expected);
  CHECK(shown.missing[0].name.addr == "host2");
  CHECK(shown.missing[0].since >= Duration(3s));
  CHECK(shown.lacking == 1);
  hello(3);
  join(3, 2);
  tell(1, StoreReady{{}, 1, "10.0.0.1", 29500});
  shown = view();
  CHECK(shown.summary.state == RunStanding::Running);
  CHECK(shown.missing.empty());
  CHECK(shown.summary.first_failure);  // The first failure stays.
  using EventKind = RunEvent::Kind;
  CHECK(kinds() == std::vector<EventKind>{
                       EventKind::Began, EventKind::NodeJoined, EventKind::NodeJoined,
                       EventKind::RoundComplete, EventKind::RoundRestarts, EventKind::NodeJoined,
                       EventKind::NodeLost, EventKind::NodeJoined, EventKind::RoundComplete});
  const RunCounters counters = service->figures(shown.now).counters;
  CHECK(counters.rounds == 2);
  CHECK(counters.recovery.count() == 1);
  CHECK(counters.runs_begun == 1);
}

TEST_CASE_METHOD(RunViewTest, "run view: lists come in pages", "[unit][rendezvous]") {
  for (std::uint32_t client = 1; client <= 5; ++client) {
    hello(client);
    join(client, 9);
  }
  const auto page = service->view_run("job", {3, 1}, at());
  REQUIRE(page->nodes.size() == 1);
  CHECK(page->nodes[0].name.addr == "host4");
  CHECK(page->summary.nodes == 5);
  CHECK(service->view_run("job", {99, 1}, at())->nodes.empty());
  hello(9, "other");
  CHECK(service->view_runs(0, 10, at()).runs.size() == 2);
  const RunsView second = service->view_runs(1, 1, at());
  CHECK(second.total == 2);
  REQUIRE(second.runs.size() == 1);
  CHECK(second.runs[0].id == "other");
  CHECK(service->view_runs(7, 1, at()).runs.empty());
}

TEST_CASE_METHOD(RunViewTest,
                 "run view: a client has the runs of its scope in its list, and no others",
                 "[unit][rendezvous]") {
  std::uint32_t client = 0;
  for (const char* run : {"a-1", "b-1", "a-2", "a-3"})
    hello(++client, run);
  const RunScope scope{.all = false, .patterns = {"a-*"}};
  const RunsView page = service->view_runs(1, 1, at(), scope);
  CHECK(page.total == 3);
  CHECK(page.offset == 1);
  REQUIRE(page.runs.size() == 1);
  CHECK(page.runs[0].id == "a-2");
  CHECK(service->view_runs(0, 10, at(), scope).runs.size() == 3);
  CHECK(service->view_runs(9, 10, at(), scope).offset == 3);
  CHECK(service->view_runs(0, 10, at(), {.all = false}).total == 0);
  CHECK(service->view_runs(0, 10, at()).total == 4);
}

TEST_CASE_METHOD(RunViewTest, "run view: runs and nodes are counted by state",
                 "[unit][rendezvous]") {
  two_in_a_round();
  hello(8, "other");
  join(8, 2);
  at(2s);
  const RunsFigures figures = service->figures(now);
  CHECK(figures.runs[static_cast<std::size_t>(RunStanding::Running)] == 1);
  CHECK(figures.runs[static_cast<std::size_t>(RunStanding::Gathering)] == 1);
  CHECK(figures.nodes[static_cast<std::size_t>(NodeState::Working)] == 2);
  CHECK(figures.nodes[static_cast<std::size_t>(NodeState::Joined)] == 1);
  CHECK(figures.longest_silent == Duration(2s));
}

TEST_CASE_METHOD(RunViewTest, "run view: torchrun nodes are shown with what their state tells",
                 "[unit][rendezvous]") {
  const std::string seen = begin(1);
  REQUIRE(std::holds_alternative<StateNow>(compare_set(1, seen, joined_by(1, seen))));
  const RunView shown = view();
  REQUIRE(shown.nodes.size() == 1);
  CHECK_FALSE(shown.nodes[0].native);
  CHECK_FALSE(shown.nodes[0].local_world);
  CHECK_FALSE(shown.summary.restarts_allowed);
}

TEST_CASE_METHOD(RunViewTest,
                 "runs: an operator restarts a round, which costs none of the restarts",
                 "[unit][rendezvous]") {
  using What = OperatorAsked::What;
  CHECK_FALSE(service->operate("job", What::Restart, at()).has_value());
  hello(1);
  join(1, 2);
  CHECK_THAT(*service->operate("job", What::Restart, at()), Catch::Contains("no round runs"));
  hello(2);
  join(2, 2);
  tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
  take();
  CHECK(service->operate("job", What::Restart, at()) == "");
  const auto restarts = messages<RestartRound>();
  REQUIRE(restarts.size() == 2);
  CHECK(restarts.at(1).cause == RestartCause::Requested);
  CHECK(view().summary.restarts_used == 0);
  CHECK_FALSE(view().summary.first_failure);
  const RunEvent event = view().events.back();
  CHECK(event.node.empty());  // No node is called "operator".
  CHECK(event.text == "an operator (musterctl restart)");
  CHECK_THAT(notes, Catch::Contains("cause=requested who=operator what=\"musterctl restart\""));
}

TEST_CASE_METHOD(RunViewTest, "runs: no operator restarts a round that no other round could follow",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(1, NodeFinished{{}, 0, true, ""});
  CHECK_THAT(*service->operate("job", OperatorAsked::What::Restart, at()),
             Catch::Contains("the workers of 1 of its nodes have finished"));
  CHECK(messages<RestartRound>().empty());
  CHECK_FALSE(service->rendezvous("job")->outcome());
}

TEST_CASE_METHOD(RunViewTest, "runs: an operator stops a run for everybody, once",
                 "[unit][rendezvous]") {
  using What = OperatorAsked::What;
  two_in_a_round();
  CHECK(service->operate("job", What::Stop, at()) == "");
  const auto ends = messages<RunEnded>();
  REQUIRE(ends.size() == 2);
  CHECK_FALSE(ends.at(2).succeeded);
  CHECK(ends.at(2).why == "an operator has stopped it");
  CHECK(view().summary.state == RunStanding::Failed);
  CHECK_THAT(*service->operate("job", What::Stop, at()), Catch::Contains("has ended"));
}

TEST_CASE_METHOD(RunViewTest, "runs: an operator's request for torchrun nodes alone is refused",
                 "[unit][rendezvous]") {
  const std::string seen = begin(1);
  compare_set(1, seen, joined_by(1, seen));
  CHECK_THAT(*service->operate("job", OperatorAsked::What::Stop, at()),
             Catch::Contains("no muster node"));
}

TEST_CASE_METHOD(RunViewTest, "run view JSON: it is valid and has the values of the view",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(2, WorkersFailed{{}, 0, "rank 1 \"\xff\" exited"});
  const json run = json::parse(run_json(view()));
  CHECK(run["state"] == "restarting");
  CHECK(run["first_failure"]["group_rank"] == 1);
  CHECK(run["first_failure"]["cause"] == "workers_failed");
  CHECK(run["missing"].size() == 2);
  CHECK(run["outcome"].is_null());
  CHECK(run["events"].size() == 5);
  const json nodes = json::parse(nodes_json(view()));
  CHECK(nodes["total"] == 2);
  CHECK(nodes["nodes"][0]["kind"] == "muster");
  CHECK(nodes["nodes"][0]["absent_seconds"].is_null());
  const json runs = json::parse(runs_json(service->view_runs(0, 10, at())));
  CHECK(runs["runs"][0]["id"] == "job");
  const RunView shown = view();
  CHECK(json::parse(event_json(shown.events.back(), shown))["kind"] == "round_restarts");
}

TEST_CASE("run view JSON: bytes that are not UTF-8 are replaced", "[unit][rendezvous]") {
  RunsView view;
  view.runs.push_back({.id = "a\xff\n<b>"});
  const json runs = json::parse(runs_json(view));
  CHECK(runs["runs"][0]["id"] == "a\xef\xbf\xbd\n<b>");
}

}  // namespace muster::testing

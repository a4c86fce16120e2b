// Notices at a run service: which nodes are told, its log, its history, and its record.

#include "tests/unit/rendezvous/host/run_recording_fixture.h"

namespace muster::testing {
namespace {

struct RunNotices : RecordingTest {
  void hello_with(std::uint32_t client, bool notices) {
    const auto answer = tell(
        client,
        NativeHello{.muster_version = "9.9", .run_id = "job", .resumes = true, .notices = notices});
    REQUIRE(std::get<NativeWelcome>(*answer.reply).notices);
  }
  void two_with(bool first, bool second) {
    for (const std::uint32_t client : {1, 2}) {
      hello_with(client, client == 1 ? first : second);
      tell(client, joining(client));
    }
    end_turn();
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    end_turn();
    rounds = messages<RoundComplete>();
    REQUIRE(rounds.size() == 2);
  }
  RunView view() { return *service->view_run("job", {0, 99}, at()); }
};

TEST_CASE_METHOD(RunNotices, "run notices: only nodes whose hello says so are told",
                 "[unit][rendezvous]") {
  const auto [first, second] = GENERATE(std::pair(true, true), std::pair(false, true));
  two_with(first, second);
  tell(2, NodeNotified{{}, 60s, "spot", 0});
  end_turn();
  const auto told = messages<PreemptionNotice>();
  CHECK(told.count(1) == (first ? 1U : 0U));
  CHECK(told.count(2) == 1);
}

TEST_CASE_METHOD(RunNotices, "run notices: the log and the history", "[unit][rendezvous]") {
  two_with(true, true);
  tell(2, NodeNotified{{}, 90s - 1ms, "spot \"2\"", 0});
  tell(1, NodeSaved{{}, 0});
  end_turn();
  take();
  CHECK_THAT(notes, Catch::Contains("notice_given run=job node=host2_2_0 rank=1 seconds=90 "
                                    "by=node reason=\"spot \\\"2\\\"\"") ||
                        Catch::Contains("notice_given run=job node=host2_2_0 rank=1 seconds=90 "
                                        "by=node reason=\"spot"));
  CHECK_THAT(notes, Catch::Contains("node_saved run=job node=host1_1_0 rank=0 round=0"));
  tell(2, NodeSaved{{}, 0});
  end_turn();
  const auto ends = messages<RunEnded>();
  REQUIRE(ends.size() == 2);
  CHECK(ends.at(1).preempted);
  CHECK_THAT(notes, Catch::Contains("run_ended run=job succeeded=false preempted=true who=none"));
  std::vector<RunEvent::Kind> kinds;
  for (const RunEvent& event : view().events)
    kinds.push_back(event.kind);
  using Kind = RunEvent::Kind;
  CHECK(std::vector<Kind>(kinds.end() - 4, kinds.end()) ==
        std::vector<Kind>{Kind::NoticeGiven, Kind::NodeSaved, Kind::NodeSaved, Kind::Preempted});
  CHECK_FALSE(view().summary.first_failure);
  CHECK(view().summary.state == RunStanding::Preempted);
  CHECK(service->figures(now).counters.runs_preempted == 1);
  CHECK(service->figures(now).counters.runs_failed == 0);
  CHECK(service->figures(now).counters.notices == 1);
  CHECK(service->history().back().outcome.preempted);
}

TEST_CASE_METHOD(RunNotices, "run notices: the next host knows the deadline, by the wall clock",
                 "[unit][rendezvous]") {
  two_with(true, true);
  OperatorAsked asked{OperatorAsked::What::Drain, "host2"};
  asked.notice = 60s;
  asked.reason = "kernel update";
  REQUIRE(service->operate("job", asked, at(), 1) == "");
  end_turn();
  const std::int64_t deadline_ms = view().notice->first.deadline_ms;
  at(20s);
  begin_recorded();
  hello_with(11, true);
  NodeResumed resumed;
  resumed.join = joining(1);
  resumed.join.last_round = 0;
  resumed.join.life = rounds.at(1).life;
  resumed.join.generation = rounds.at(1).generation;
  resumed.group_world_size = 2;
  tell(11, resumed);
  end_turn();
  const auto told = messages<PreemptionNotice>();
  REQUIRE(told.contains(11));
  CHECK(told.at(11).left == 40s);
  CHECK(told.at(11).reason == "kernel update");
  CHECK(view().notice->first.deadline_ms == deadline_ms);
  CHECK(view().notice->silent_total == 2);
}

TEST_CASE_METHOD(RunNotices, "run notices: an ended run is not forgotten to have been preempted",
                 "[unit][rendezvous]") {
  two_with(true, true);
  tell(2, NodeNotified{{}, 60s, "spot", 0});
  tell(1, NodeSaved{{}, 0});
  tell(2, NodeSaved{{}, 0});
  end_turn();
  begin_recorded();
  CHECK(service->rendezvous("job")->outcome()->preempted);
  resume(1, 11);
  end_turn();
  CHECK(messages<RunEnded>().at(11).preempted);
}

}  // namespace
}  // namespace muster::testing

// Nodes of a run that has ended, and new nodes of the same run id.

#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {
namespace {

struct EndedRunTest : RunServiceTest {
  NodeJoined joining(std::uint32_t client, const std::string& instance) const {
    NodeJoined joined;
    joined.name = {"host" + std::to_string(client), client, 0};
    joined.instance = instance;
    joined.run = for_nodes(2);
    joined.resumes = true;
    return joined;
  }
  void hello_resumes(std::uint32_t client) {
    REQUIRE(tell(client, NativeHello{kNativeProtocolVersion, "9.9", "job", true}).close.empty());
  }
  /// Clients 1 and 2 were in a round, and have finished. Client 3 was a spare: its connection broke
  /// so long before the end.
  void end_without_the_spare(Duration before = 0s) {
    for (const std::uint32_t client : {1, 2, 3}) {
      hello_resumes(client);
      NodeJoined joined = joining(client, "instance" + std::to_string(client));
      joined.spare = client == 3;
      tell(client, joined);
    }
    REQUIRE(messages<PrepareStore>().size() == 1);
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    generation = messages<RoundComplete>().at(1).generation;
    service->disconnect({3}, at());
    service->time_passed(at(before));
    for (const std::uint32_t client : {1, 2})
      tell(client, NodeFinished{{}, 0, true, ""});
    REQUIRE(messages<RunEnded>().size() == 2);
    for (const std::uint32_t client : {1, 2})
      service->disconnect({client}, at());
    take();
  }
  std::int64_t generation = 0;
};

TEST_CASE_METHOD(EndedRunTest,
                 "ended runs: a node that missed the end learns it when it comes back",
                 "[unit][rendezvous]") {
  end_without_the_spare(GENERATE(0s, 2s));
  hello_resumes(4);
  SECTION("a spare") {
    NodeJoined spare = joining(3, "instance3");
    spare.spare = true;
    tell(4, spare);
  }
  SECTION("a node of its rounds, which was told to join as if it were new") {
    NodeJoined rejoined = joining(5, "instance5");
    rejoined.generation = generation;
    tell(4, rejoined);
  }
  const auto ended = messages<RunEnded>();
  REQUIRE(ended.contains(4));
  CHECK(ended.at(4).succeeded);
  CHECK(service->rendezvous("job")->outcome());
  // That is no reason to refuse the next run.
  hello_resumes(6);
  tell(6, joining(6, "instance6"));
  CHECK_FALSE(service->rendezvous("job")->outcome());
  CHECK(service->rendezvous("job")->members() == 1);
}

TEST_CASE_METHOD(EndedRunTest, "ended runs: a new agent begins the run again, whatever its name",
                 "[unit][rendezvous]") {
  end_without_the_spare();
  hello_resumes(4);
  tell(4, joining(3, GENERATE("another", "")));
  CHECK_FALSE(service->rendezvous("job")->outcome());
  CHECK(service->rendezvous("job")->members() == 1);
  hello_resumes(5);
  // The old spare is not a node of the new run, and joins it as any other node.
  tell(5, joining(6, "instance3"));
  CHECK(service->rendezvous("job")->members() == 2);
}

/// A host that keeps two ended runs.
struct KeptRunsTest : RunServiceTest {
  KeptRunsTest() {
    RunServiceOptions options;
    options.kept_ended_runs = 2;
    reset(std::move(options));
  }
  NodeReport failed_report(const std::string& last_lines) const {
    return {.from = {},
            .round = 0,
            .starts = 1,
            .workers = 1,
            .listed = {},
            .failure = FailureReport{.round = 0,
                                     .rank = 0,
                                     .pid = 7,
                                     .exit = "exited with 3",
                                     .because = {},
                                     .message = {},
                                     .stderr_end = last_lines}};
  }
  /// A run of one node, which fails for good and leaves.
  void fail(const std::string& id, std::uint32_t client) {
    hello(client, id);
    NodeJoined joined;
    joined.name = {"host" + std::to_string(client), client, 0};
    joined.run = {.min_nodes = 1, .max_nodes = 1, .max_restarts = 0};
    tell(client, joined);
    tell(client, StoreReady{{}, 0, "10.0.0.1", 29500});
    tell(client, failed_report(""));
    tell(client, WorkersFailed{{}, 0, "rank 0 exited with 3"});
    REQUIRE(service->view_run(id, {0, 10}, at())->outcome);
    tell(client, failed_report("ValueError: " + id));  // Its last lines are known only now.
    service->disconnect({client}, at());
    service->time_passed(at());
    take();
  }
  bool is_known(const std::string& id) { return service->view_run(id, {0, 10}, at()).has_value(); }
};

TEST_CASE_METHOD(KeptRunsTest, "ended runs: one is kept with its failure, long after its end",
                 "[unit][rendezvous]") {
  fail("night", 1);
  int keys_removed = 0;
  for (int hour = 0; hour < 30; ++hour) {
    service->time_passed(at(1h));
    for (const RunEffect& effect : take())
      if (const auto* forget = std::get_if<ForgetRun>(&effect))
        keys_removed += forget->state_key == "/torch.rendezvous.night" ? 1 : 100;
  }
  CHECK(keys_removed == 1);  // What its workers had stored does not stay.
  CHECK_FALSE(service->next_deadline());
  const auto view = service->view_run("night", {0, 10}, at());
  REQUIRE(view);
  CHECK(view->summary.state == RunStanding::Failed);
  CHECK(view->summary.ended_before == 30h);
  REQUIRE(view->first_failure_report);
  CHECK(view->first_failure_report->stderr_end == "ValueError: night");
  CHECK_FALSE(view->events.empty());
  CHECK(service->view_runs(0, 10, at()).runs.size() == 1);
  CHECK_THAT(*service->ask("night", 0, {.to = {}, .number = 1}, at()),
             Catch::Contains("the run has ended") && Catch::Contains("--log-dir"));
}

TEST_CASE_METHOD(KeptRunsTest, "ended runs: the age of one grows while nothing else happens",
                 "[unit][rendezvous]") {
  fail("night", 1);
  const auto age = [this](Duration passes) {
    return service->view_runs(0, 1, at(passes)).runs.at(0).ended_before;
  };
  CHECK(age(0s) == 0s);
  CHECK(age(7h) == 7h);
  CHECK(service->view_run("night", {0, 1}, at(1h))->summary.ended_before == 8h);
}

TEST_CASE_METHOD(KeptRunsTest, "ended runs: newer ones take the places of the oldest",
                 "[unit][rendezvous]") {
  fail("b", 1);
  at(1s);
  fail("a", 2);
  service->time_passed(at(1h));
  CHECK((is_known("a") && is_known("b")));
  fail("c", 3);
  service->time_passed(at());
  CHECK_FALSE(is_known("b"));
  CHECK((is_known("a") && is_known("c")));
  CHECK_THAT(notes, Catch::Contains("run_forgotten run=b"));
}

TEST_CASE_METHOD(KeptRunsTest, "ended runs: one that has lost its place has its usual time",
                 "[unit][rendezvous]") {
  for (std::uint32_t client = 1; client <= 3; ++client) {
    fail("job" + std::to_string(client), client);
    service->time_passed(at(1s));
  }
  CHECK(is_known("job1"));
  service->time_passed(at(60s));
  CHECK_FALSE(is_known("job1"));
  CHECK((is_known("job2") && is_known("job3")));
}

TEST_CASE_METHOD(KeptRunsTest, "ended runs: a kept one gives its id to a new run",
                 "[unit][rendezvous]") {
  fail("job", 1);
  service->time_passed(at(1h));
  hello(2);
  join(2, 1);
  const auto view = service->view_run("job", {0, 10}, at());
  CHECK_FALSE(view->outcome);
  CHECK_FALSE(view->summary.ended_before);
  CHECK_FALSE(view->first_failure_report);
  // People can still see how the kept one ended.
  REQUIRE(view->previous);
  CHECK_FALSE(view->previous->succeeded);
  CHECK(view->previous->why == "rank 0 exited with 3 (--max-restarts=0)");
  CHECK(view->previous->ended_at_ms.has_value());
  CHECK(view->previous->first_failure.has_value());
  REQUIRE(view->previous->failure_report);
  CHECK(view->previous->failure_report->stderr_end == "ValueError: job");
}

TEST_CASE_METHOD(KeptRunsTest, "ended runs: a kept one gives its room to a new run",
                 "[unit][rendezvous]") {
  fail("job", 1);
  service->set_limits(1, 60s);
  fail("other", 3);
  CHECK_FALSE(is_known("job"));
  CHECK(is_known("other"));
}

TEST_CASE_METHOD(KeptRunsTest, "ended runs: a host that keeps none forgets them as before",
                 "[unit][rendezvous]") {
  reset({});
  fail("job", 1);
  service->time_passed(at(59s));
  CHECK(is_known("job"));
  service->time_passed(at(2s));
  CHECK_FALSE(is_known("job"));
}

}  // namespace
}  // namespace muster::testing

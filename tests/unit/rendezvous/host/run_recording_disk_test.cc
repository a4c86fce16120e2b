// A run service whose storage fails, or does not answer for a while.

#include "tests/unit/rendezvous/host/run_recording_fixture.h"

namespace muster::testing {
namespace {

struct EndedTest : RecordingTest {
  /// The run has ended and its nodes have left when the disk fails. Later nodes are another job's.
  void end_before_the_disk_fails() {
    two_recorded();
    for (const std::uint32_t client : {1, 2})
      tell(client, NodeFinished{{}, 0, true, ""});
    end_turn();
    CHECK(messages<RunEnded>().size() == 2);
    for (const std::uint32_t client : {1, 2})
      service->disconnect({client}, at());
    end_turn();
    service->recorded({.durable = 0, .problem = "disk is full"}, at());
    agents = "of the next job";
  }
};

TEST_CASE_METHOD(RecordingTest, "recording: with a failing disk runs go on, and no new run begins",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  service->recorded({.durable = 0, .problem = "disk is full"}, at());
  CHECK(messages<RestartRound>().size() == 2);
  CHECK(service->state_problem() == "disk is full");
  CHECK_THAT(notes, Catch::Contains("state_not_recorded reason=\"disk is full\""));
  const auto refused = tell(3, NativeHello{kNativeProtocolVersion, "9.9", "new", true});
  CHECK_THAT(refused.close, Catch::Contains("cannot be recorded: disk is full"));
  hello_resumes(4);  // A node of an existing run is still accepted.
  tell(2, RestartRequested{{}, "why not", 0});
  turn_ends();
  commit();
  CHECK(service->state_problem().empty());
  take();
  CHECK_THAT(notes, Catch::Contains("state_is_recorded_again"));
  CHECK(tell(3, NativeHello{kNativeProtocolVersion, "9.9", "new", true}).close.empty());
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: the disk works again, although changes never cease to come",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  service->recorded({.durable = 0, .problem = "disk is full"}, at());
  const std::uint64_t durable = state.commit();
  for (const std::uint32_t client : {1, 2}) {
    NodeJoined again = joining(client);
    again.last_round = 0;
    tell(client, again);
  }
  REQUIRE(turn_ends());
  service->recorded({.durable = durable, .problem = {}}, at());
  CHECK(service->state_problem().empty());
}

TEST_CASE_METHOD(EndedTest,
                 "recording: with a failing disk the next job of an id waits for the disk",
                 "[unit][rendezvous]") {
  end_before_the_disk_fails();
  for (const std::uint32_t client : {3, 4}) {
    hello_resumes(client);
    const auto waits = tell(client, joining(client));
    CHECK_THAT(std::get<NativeWaiting>(*waits.reply).text, Catch::Contains("disk is full"));
    tell(client, KeptAlive{});
  }
  CHECK(messages<RunEnded>().empty());
  SECTION("until the disk works") {
    commit();
    end_turn();
    CHECK(messages<PrepareStore>().size() == 1);
    CHECK_THAT(notes, Catch::Contains("run_begins_again run=job"));
  }
  SECTION("for its join timeout") {
    REQUIRE(service->next_deadline().has_value());
    service->time_passed(at(for_nodes(2).join_timeout));
    const auto refused = messages<JoinRefused>();
    REQUIRE(refused.size() == 2);
    CHECK(refused.at(3).why == JoinRefused::Why::TimedOut);
    CHECK_THAT(refused.at(3).text, Catch::Contains("disk is full"));
  }
  SECTION("or, with any other event, as before") {
    tell(3, RestartRequested{{}, "why not", 0});
    CHECK(service->next_deadline().has_value());
    commit();
    end_turn();
    CHECK(messages<PrepareStore>().empty());  // Client 4 alone has joined.
  }
  SECTION("or until it leaves") {
    tell(3, NodeLeft{});
    service->disconnect({4}, at());
    commit();
    end_turn();
    CHECK(messages<PrepareStore>().empty());
  }
}

TEST_CASE_METHOD(EndedTest, "recording: a join that waits for the disk may have any timeout",
                 "[unit][rendezvous]") {
  end_before_the_disk_fails();
  hello_resumes(3);
  NodeJoined patient = joining(3);
  patient.run.join_timeout = Duration::max();
  tell(3, patient);
  service->time_passed(at(24h));
  CHECK(messages<JoinRefused>().empty());
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: with a failing disk a run that all nodes had left goes on",
                 "[unit][rendezvous]") {
  two_recorded();
  for (const std::uint32_t client : {1, 2})
    service->disconnect({client}, at());
  end_turn();
  service->recorded({.durable = 0, .problem = "disk is full"}, at());
  for (int i = 0; i < 10; ++i)
    service->time_passed(at(500ms));
  CHECK(service->rendezvous("job")->members() == 0);
  at(2h);
  agents = "that were started again";
  two_join();
  CHECK(messages<PrepareStore>().size() == 1);
}

TEST_CASE_METHOD(RecordingTest, "recording: a disk that hangs delays the nodes for 5 s only",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  REQUIRE(service->next_deadline().has_value());
  CHECK(*service->next_deadline() <= now + 5s);
  now += 4s;
  for (const std::uint32_t client : {1, 2})
    tell(client, KeptAlive{});
  CHECK(take().empty());
  service->time_passed(at(1s));
  CHECK(messages<RestartRound>().size() == 2);
  CHECK_THAT(service->state_problem(), Catch::Contains("has not answered for 5 s"));
  commit();
  CHECK(service->state_problem().empty());
}

}  // namespace
}  // namespace muster::testing

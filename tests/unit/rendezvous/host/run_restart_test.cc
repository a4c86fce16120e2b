// A host with a disk that is started again: what it knows, and how long it waits for its nodes.

#include "tests/unit/rendezvous/host/run_recording_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE_METHOD(RecordingTest,
                 "recording: whatever generation a node names, the records can be read again",
                 "[unit][rendezvous]") {
  // The second run begins above the generations of the first one, and records them.
  for (int run = 0; run < 2; ++run) {
    for (const std::uint32_t client : {1, 2}) {
      hello_resumes(client);
      NodeJoined joined = joining(client);
      joined.instance += " of run " + std::to_string(run);
      joined.generation = run == 0 ? kMaxGeneration : 0;
      tell(client, joined);
    }
    end_turn();
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    end_turn();
    REQUIRE(state.load().runs.size() == 1);  // load() decodes the records.
    for (const std::uint32_t client : {1, 2})
      tell(client, NodeFinished{{}, 0, true, {}});
    for (const std::uint32_t client : {1, 2})
      service->disconnect({client}, at());
    end_turn();
  }
  CHECK(state.load().ended.size() == 2);
}

TEST_CASE_METHOD(RecordingTest, "recording: a run is not ended because its spare is not back yet",
                 "[unit][rendezvous]") {
  two_recorded();
  const NodeJoined spare = spare_joins(3);
  tell(1, NodeFinished{{}, 0, true, {}});
  tell(2, WorkersFailed{{}, 0, "rank 1 exited with 1"});
  end_turn();
  REQUIRE_FALSE(service->rendezvous("job")->outcome());  // The spare steps in.
  begin_recorded();
  REQUIRE_FALSE(service->rendezvous("job")->outcome());
  service->time_passed(at(60s));
  CHECK_FALSE(service->rendezvous("job")->outcome());
  resume(1, 11, NodeResumed::State::Finished);
  hello_resumes(12);
  NodeJoined again = joining(2);
  again.last_round = 0;
  again.life = rounds.at(2).life;
  again.generation = rounds.at(2).generation;
  tell(12, again);
  CHECK_FALSE(service->rendezvous("job")->outcome());
  SECTION("it comes") {
    hello_resumes(13);
    tell(13, spare);
    CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Preparing);
    return;
  }
  SECTION("it does not come") {
    for (int second = 0; second < 6; ++second) {
      tell(12, KeptAlive{});
      service->time_passed(at(1s));
    }
    end_turn();
    CHECK_FALSE(messages<RunEnded>().at(12).succeeded);
  }
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a spare learns from any later host that its run has ended",
                 "[unit][rendezvous]") {
  two_recorded();
  NodeJoined spare = spare_joins(3);
  const bool is_lost = GENERATE(false, true);
  if (is_lost) {
    service->disconnect({3}, at());
    for (int second = 0; second < 7; ++second) {
      tell(1, KeptAlive{});
      tell(2, KeptAlive{});
      service->time_passed(at(1s));
    }
  }
  for (const std::uint32_t client : {1, 2})
    tell(client, NodeFinished{{}, 0, true, {}});
  end_turn();
  CHECK(messages<RunEnded>().count(3) == (is_lost ? 0 : 1));
  const auto joins_again = [&](std::uint32_t client) {
    hello_resumes(client);
    tell(client, spare);
    end_turn();
    return messages<RunEnded>().count(client) == 1;
  };
  // The spare has lost its connection before it could read that.
  const bool hands_over = GENERATE(false, true);
  for (std::uint32_t host = 1; host <= 3; ++host) {
    if (hands_over)
      begin_handed_over();
    else
      begin_recorded();
    CHECK(joins_again(10 * host));
  }
  SECTION("another agent of the same name begins the run again") {
    spare.instance += " of the next job";
    CHECK_FALSE(joins_again(50));
    CHECK_FALSE(service->rendezvous("job")->outcome());
  }
  SECTION("in a round that is newer than the record it is not expected") {
    for (const std::uint32_t client : {1, 2})
      resume(client, 60 + client, NodeResumed::State::Running, 3);
    end_turn();
    CHECK(messages<Resumed>().size() == 2);
    CHECK(state.load().runs.front().members.size() == 2);
  }
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a run that all agents have left begins again with other settings",
                 "[unit][rendezvous]") {
  begin_handed_over();
  two_recorded();
  for (const std::uint32_t client : {1, 2})
    tell(client, NodeLeft{});
  end_turn();
  begin_handed_over();
  agents = " of the next job";
  for (const std::uint32_t client : {11, 12}) {
    hello_resumes(client);
    NodeJoined joined = joining(client);
    joined.run.max_restarts = 5;
    tell(client, joined);
  }
  end_turn();
  CHECK(messages<PrepareStore>().size() == 1);
}

/// Without a record, the next host learns of the round from its nodes.
struct ForgetfulHostTest : RecordingTest {
  ForgetfulHostTest() { two_recorded(); }
  void seconds_pass(std::uint32_t client, int seconds) {
    for (int second = 0; second < seconds; ++second) {
      tell(client, KeptAlive{});
      service->time_passed(at(1s));
    }
  }
  void join_after_round(std::uint32_t client, std::uint32_t as) {
    NodeJoined again = joining(client);
    again.last_round = 0;
    again.generation = rounds.at(client).generation;
    tell(as, again);
  }
};

TEST_CASE_METHOD(ForgetfulHostTest,
                 "no record: a finished node counts, whichever node resumes first",
                 "[unit][rendezvous]") {
  reset({});
  const bool stopped_first = GENERATE(true, false);
  if (stopped_first) resume(1, 11, NodeResumed::State::Stopped);
  resume(2, 12, NodeResumed::State::Finished);
  if (!stopped_first) resume(1, 11, NodeResumed::State::Stopped);
  CHECK(messages<Resumed>().count(12) == 1);
  join_after_round(1, 11);
  seconds_pass(11, 10);
  REQUIRE(service->rendezvous("job")->outcome());  // Too few nodes are left.
  CHECK_FALSE(service->rendezvous("job")->outcome()->succeeded);
}

TEST_CASE_METHOD(ForgetfulHostTest, "no record: a node that never comes back has not succeeded",
                 "[unit][rendezvous]") {
  reset({});
  resume(2, 12, NodeResumed::State::Finished);
  seconds_pass(12, 10);
  REQUIRE(service->rendezvous("job")->outcome());
  CHECK_FALSE(service->rendezvous("job")->outcome()->succeeded);
  CHECK_THAT(service->rendezvous("job")->outcome()->why,
             Catch::Contains("1 of the 2 nodes have not come back"));
}

TEST_CASE_METHOD(ForgetfulHostTest, "no record: a node may finish after it was told to join again",
                 "[unit][rendezvous]") {
  reset({});
  resume(1, 11);
  seconds_pass(11, 7);
  REQUIRE(messages<Rejoin>().count(11) == 1);
  tell(11, NodeFinished{{}, 0, true, {}});  // Its workers ended before it could read that.
  resume(2, 12, NodeResumed::State::Stopped);
  join_after_round(2, 12);
  seconds_pass(12, 10);
  CHECK(service->rendezvous("job")->outcome());
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a prepared round waits as long for its nodes as one that runs",
                 "[unit][rendezvous]") {
  two_join();
  end_turn();
  begin_recorded();
  REQUIRE(service->rendezvous("job")->phase() == Rendezvous::Phase::Preparing);
  service->time_passed(at(9min));
  REQUIRE(service->rendezvous("job")->phase() == Rendezvous::Phase::Preparing);
  SECTION("they come") {
    for (const std::uint32_t client : {1, 2}) {
      hello_resumes(10 + client);
      tell(10 + client, joining(client));
    }
    end_turn();
    CHECK(messages<PrepareStore>().contains(11));
    for (int seconds = 0; seconds < 30; ++seconds) {
      for (const std::uint32_t client : {11, 12})
        tell(client, KeptAlive{});
      service->time_passed(at(1s));
    }
    end_turn();
    // Rank 0 does not answer.
    CHECK_THAT(messages<RunEnded>().at(12).why, Catch::Contains("not ready within 30 s"));
  }
  SECTION("they do not come") {
    service->time_passed(at(1min));
    CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Gathering);
  }
}

TEST_CASE_METHOD(RecordingTest, "recording: a finished node of a mixed round does not come back",
                 "[unit][rendezvous]") {
  const RunRecord record{.settings = {.min_nodes = 2, .max_nodes = 3},
                         .life = 5,
                         .round = 3,
                         .generation = 30,
                         .highest_generation = 30,
                         .had_round = true,
                         .complete = true,
                         .draining = true,
                         .last_world = 3};
  StoredState stored;
  stored.runs.push_back({"job",
                         record,
                         {{.name = {"host1", 1, 0}, .rank = 0, .instance = "instance1"},
                          {.name = {"host2", 2, 0},
                           .standing = MemberRecord::Standing::Finished,
                           .rank = 1,
                           .instance = "instance2"},
                          {.name = {"torch", 9, 0}, .rank = 2, .native = false}}});
  reset({.recorded = true});
  service->restore(std::move(stored), at());
  REQUIRE(service->rendezvous("job")->phase() == Rendezvous::Phase::Gathering);
  const std::string reason(service->rendezvous("job")->reason());
  CHECK_THAT(reason, Catch::Contains("to come back: host1_1_0 (was rank 0);"));
  CHECK_THAT(reason, Catch::Contains("1 has finished"));
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a node that was told to restart must join again for a newer round",
                 "[unit][rendezvous]") {
  two_recorded();
  begin_recorded();
  resume(1, 11);
  tell(11, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  end_turn();
  REQUIRE(messages<RestartRound>().contains(11));
  resume(2, 12, NodeResumed::State::Running, 3);  // The record is older than this node's round.
  end_turn();
  CHECK(messages<Rejoin>().contains(11));
  NodeJoined again = joining(1);
  again.last_round = 0;
  again.life = rounds.at(1).life;
  again.generation = rounds.at(1).generation;
  tell(11, again);
  for (int second = 0; second < 6; ++second) {
    for (const std::uint32_t client : {11, 12})
      tell(client, KeptAlive{});
    service->time_passed(at(1s));
  }
  end_turn();
  REQUIRE(messages<Rejoin>().contains(12));
  again = joining(2);
  again.generation = rounds.at(2).generation + 3;
  tell(12, again);
  end_turn();
  CHECK(messages<PrepareStore>().size() == 1);
}

TEST_CASE_METHOD(RecordingTest, "recording: a node with other settings does not end the round",
                 "[unit][rendezvous]") {
  two_recorded();
  begin_recorded();
  resume(1, 11);
  hello_resumes(13);
  NodeResumed other;
  other.join = joining(3, 5);
  other.join.last_round = 3;
  other.join.generation = rounds.at(1).generation + 3;
  tell(13, other);
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
  end_turn();
  CHECK(messages<JoinRefused>().at(13).why == JoinRefused::Why::Settings);
}

struct PowerCut : RecordingTest {
  void seconds_pass(int count) {
    for (int second = 0; second < count; ++second)
      service->time_passed(at(1s));
    end_turn();
  }
  /// The refusal of a new node with these settings, which goes again. Empty: it is let in.
  std::string refusal_of(std::uint32_t client, const RunSettings& settings) {
    hello_resumes(client);
    NodeJoined joined = joining(client);
    joined.run = settings;
    tell(client, joined);
    end_turn();
    const auto refused = messages<JoinRefused>();
    service->disconnect({client}, at());
    end_turn();
    return refused.contains(client) ? refused.at(client).text : std::string();
  }
  RunSettings other = {.min_nodes = 2, .max_nodes = 2, .max_restarts = 7};
};

TEST_CASE_METHOD(PowerCut,
                 "recording: other settings are refused for a minute after a power cut, and the "
                 "text says how long, and what helps",
                 "[unit][rendezvous]") {
  using Catch::Contains;
  two_recorded();
  CHECK_THAT(refusal_of(9, other), Contains("--max-restarts=7, and") &&
                                       !Contains("musterctl stop") && !Contains("is here"));
  begin_recorded();
  seconds_pass(47);
  CHECK_THAT(refusal_of(11, other), Contains("--max-restarts=7, and") &&
                                        Contains("no node of that run is here") &&
                                        Contains("is forgotten in 66 s (--forget-run-seconds)") &&
                                        Contains("musterctl stop") && Contains("--rdzv-id"));
  seconds_pass(20);
  CHECK_THAT(refusal_of(12, other), Contains("is forgotten in 46 s"));
  seconds_pass(45);
  CHECK_THAT(refusal_of(13, other), Contains("is forgotten in 1 s"));
  seconds_pass(2);
  CHECK(refusal_of(14, other).empty());
}

TEST_CASE_METHOD(PowerCut, "recording: a refusal says nothing of time if nothing can be forgotten",
                 "[unit][rendezvous]") {
  two_recorded();
  begin_recorded();
  service->recorded({.durable = 0, .problem = "the disk is full"}, at());
  CHECK_THAT(refusal_of(11, other),
             Catch::Contains("musterctl stop") && !Catch::Contains("forgotten"));
}

TEST_CASE_METHOD(PowerCut,
                 "recording: a new job with the settings of an old run is told its used restarts",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  end_turn();
  begin_recorded();
  agents = " of the new job";
  const auto new_node = [&](std::uint32_t client) {
    hello_resumes(client);
    NodeJoined joined = joining(client);
    joined.name = {"host" + std::to_string(client - 20), client, 0};  // The same machines.
    joined.command = "a digest";
    tell(client, joined);
    end_turn();
    return messages<Notice>();
  };
  CHECK_THAT(new_node(21).at(21).text, Catch::Contains("1 of its 1 restarts") &&
                                           Catch::Contains("--rdzv-id") &&
                                           Catch::Contains("musterctl stop"));
  CHECK(new_node(22).empty());
  for (int second = 0; second < 7; ++second) {
    for (const std::uint32_t client : {21, 22})
      tell(client, KeptAlive{});
    service->time_passed(at(1s));
  }
  end_turn();
  const auto prepare = messages<PrepareStore>();
  REQUIRE(prepare.size() == 1);
  tell(prepare.begin()->first, StoreReady{{}, prepare.begin()->second.round, "10.0.0.1", 29500});
  end_turn();
  CHECK(messages<RoundComplete>().at(22).restart_count == 1);
}

}  // namespace
}  // namespace muster::testing

// The node's side of the native door: its messages, and the data that it keeps for later.

#include "rendezvous/node/native_participant.h"

#include <memory>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/node/native_participant_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE_METHOD(ParticipantTest, "participant: a node that runs resumes on a new connection",
                 "[unit][rendezvous]") {
  run_round();
  CHECK_FALSE(has<Participant::RestartWorkers>(feed(Participant::ConnectionBroke{"reset"})));
  const auto resumes = sent<NodeResumed>(connect());
  REQUIRE(resumes.size() == 1);
  CHECK(resumes[0].state == NodeResumed::State::Running);
  CHECK(resumes[0].join.last_round == 4);
  CHECK(resumes[0].join.generation == 40);
  CHECK_FALSE(participant->attached());
  CHECK_FALSE(has<Participant::RestartWorkers>(hear(Resumed{{}, 4, 40, 8})));
  CHECK(participant->attached());
}

TEST_CASE_METHOD(ParticipantTest, "participant: a node that finishes while it resumes reports it",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  REQUIRE(sent<NodeResumed>(connect()).at(0).state == NodeResumed::State::Running);
  CHECK(sent<NodeFinished>(feed(Participant::PartFinished{true, ""})).empty());
  Participant::Actions actions;
  SECTION("before it is told to join again") {
    actions = hear(Rejoin{{}, 4, 8, "these ranks have not come back in time: 1", 0});
  }
  SECTION("before it hears of a restart") {
    actions =
        hear(RestartRound{.round = 4, .cause = RestartCause::NodeLost, .what = "gone", .life = 7});
  }
  CHECK(sent<NodeFinished>(actions).size() == 1);
  CHECK_FALSE(has<Participant::EndJob>(actions));
  // The host does not know the node at all.
  CHECK(has<Participant::EndJob>(hear(NotAMember{})));
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a node whose workers fail while it resumes resumes once more",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  REQUIRE(sent<NodeResumed>(connect()).at(0).failure.empty());
  // The host may answer the first resume with Rejoin, which would forget the failure.
  const auto again =
      sent<NodeResumed>(feed(Participant::WorkersHaveFailed{"rank 0 exited with 7"}));
  REQUIRE(again.size() == 1);
  CHECK(again[0].state == NodeResumed::State::Stopped);
  CHECK(again[0].failure == "rank 0 exited with 7");
  CHECK(again[0].join.generation == 40);
  SECTION("the round goes on") {
    CHECK(sent<WorkersFailed>(hear(Resumed{{}, 4, 40, 7})).size() == 1);
    hear(RestartRound{.round = 4, .cause = RestartCause::WorkersFailed, .life = 7});
  }
  SECTION("the round has ended") {
    hear(Rejoin{{}, 4, 7, "the round has ended", 0});
    hear(Rejoin{{}, 4, 7, "the round has ended", 1});
  }
  CHECK(sent<NodeJoined>(feed(Participant::JoinAsked{})).size() == 1);
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a node that was lost when it reported a failure reports it again",
                 "[unit][rendezvous]") {
  run_round();
  REQUIRE(
      sent<WorkersFailed>(feed(Participant::WorkersHaveFailed{"rank 0 exited with 7"})).size() ==
      1);
  const bool joins_before = GENERATE(false, true);
  if (joins_before) feed(Participant::JoinAsked{});
  const auto again = sent<NodeResumed>(hear(NotAMember{}));
  REQUIRE(again.size() == 1);
  CHECK(again[0].failure == "rank 0 exited with 7");
  const auto joins = sent<NodeJoined>(hear(Rejoin{{}, 4, 7, "the round has ended", 1}));
  CHECK(joins.size() == (joins_before ? 1 : 0));
  CHECK(sent<NodeResumed>(hear(NotAMember{})).empty());
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a node that fails for good while it resumes reports it",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  connect();
  CHECK(sent<NodeFinished>(feed(Participant::PartFinished{false, "no restart"})).empty());
  Participant::Actions actions;
  SECTION("when it is told to join again") {
    actions = hear(Rejoin{{}, 4, 7, "the round has ended", 0});
  }
  SECTION("when it hears of a restart") {
    actions = hear(RestartRound{.round = 4, .cause = RestartCause::NodeLost, .life = 7});
  }
  SECTION("after another break of the connection") {
    feed(Participant::ConnectionBroke{"reset"});
    REQUIRE(sent<NodeResumed>(connect()).at(0).failure == "no restart");
    actions = hear(RestartRound{.round = 4, .cause = RestartCause::WorkersFailed, .life = 7});
  }
  REQUIRE(sent<NodeFinished>(actions).size() == 1);
  CHECK_FALSE(sent<NodeFinished>(actions)[0].succeeded);
  CHECK(sent<NodeFinished>(actions)[0].what == "no restart");
}

TEST_CASE_METHOD(ParticipantTest, "participant: a restart answers a resume, too",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  connect();
  RestartRound restart{.round = 4, .cause = RestartCause::NodeLost, .what = "gone", .life = 7};
  CHECK(has<Participant::RestartWorkers>(hear(restart)));
  REQUIRE(participant->attached());
  const auto joins = sent<NodeJoined>(feed(Participant::JoinAsked{}));
  REQUIRE(joins.size() == 1);  // Earlier, it waited for ever for resumed or rejoin.
  CHECK(joins[0].last_round == 4);
}

TEST_CASE_METHOD(ParticipantTest, "participant: a restart is planned if no node has failed",
                 "[unit][rendezvous]") {
  const auto is_planned = [this](RestartCause cause, const NodeName& who) {
    run_round();
    const auto actions =
        hear(RestartRound{.round = 4, .cause = cause, .who = who, .what = "why", .life = 7});
    for (const auto& action : actions)
      if (const auto* restart = std::get_if<Participant::RestartWorkers>(&action))
        return restart->is_planned;
    FAIL("no restart");
    return false;
  };
  const NodeName node{"other", 7, 0};
  SECTION("a node has left") {
    CHECK(is_planned(RestartCause::NodeLeft, node));
  }
  SECTION("a node joins") {
    CHECK(is_planned(RestartCause::NodeJoined, node));
  }
  SECTION("an operator asks") {
    CHECK(is_planned(RestartCause::Requested, operator_name()));
  }
  SECTION("a node asks") {
    CHECK_FALSE(is_planned(RestartCause::Requested, node));
  }
  SECTION("a node is lost") {
    CHECK_FALSE(is_planned(RestartCause::NodeLost, node));
  }
  SECTION("workers failed") {
    CHECK_FALSE(is_planned(RestartCause::WorkersFailed, node));
  }
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a node that joins again says how many restarts there were",
                 "[unit][rendezvous]") {
  run_round();
  const RestartRound restart{
      .round = 4, .cause = RestartCause::WorkersFailed, .life = 7, .restart_count = 2};
  hear(restart);
  REQUIRE(sent<NodeJoined>(feed(Participant::JoinAsked{})).at(0).restart_count == 2);
  // A host that names a lower count has forgotten the restarts.
  feed(Participant::ConnectionBroke{"the host was killed"});
  hear(RestartRound{.round = 0, .life = 8});
  CHECK(sent<NodeJoined>(connect()).at(0).restart_count == 2);
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a failure without a connection is reported after the resume",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  CHECK(sent<WorkersFailed>(feed(Participant::WorkersHaveFailed{"rank 0 exited with 7"})).empty());
  const auto resumes = sent<NodeResumed>(connect());
  REQUIRE(resumes.size() == 1);
  CHECK(resumes[0].state == NodeResumed::State::Stopped);
  CHECK(resumes[0].failure == "rank 0 exited with 7");
  const auto told = sent<WorkersFailed>(hear(Resumed{{}, 4, 40, 7}));
  REQUIRE(told.size() == 1);
  CHECK(told[0].round == 4);
}

TEST_CASE_METHOD(
    ParticipantTest,
    "participant: a failed end without a connection is reported as failed after the resume",
    "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  const auto resumes = sent<NodeResumed>(connect());
  REQUIRE(resumes.size() == 1);
  CHECK(sent<NodeFinished>(feed(Participant::PartFinished{false, "no such file"})).empty());
  const auto told = sent<NodeFinished>(hear(Resumed{{}, 4, 40, 7}));
  REQUIRE(told.size() == 1);
  CHECK_FALSE(told[0].succeeded);
  CHECK(told[0].what == "no such file");
  // Nobody knows whether the host has read it when the connection breaks again.
  feed(Participant::ConnectionBroke{"reset"});
  const auto again = sent<NodeResumed>(connect());
  REQUIRE(again.size() == 1);
  CHECK(again[0].state == NodeResumed::State::Stopped);
  CHECK(again[0].failure == "no such file");
  CHECK_FALSE(sent<NodeFinished>(hear(Resumed{{}, 4, 40, 7})).at(0).succeeded);
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a host that refuses the resume of a failed node is asked again",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::WorkersHaveFailed{"rank 0 exited with 7"});
  feed(Participant::ConnectionBroke{"reset"});
  connect();
  const JoinRefused refused{{}, JoinRefused::Why::Closed, "the run is closed"};
  CHECK_FALSE(has<Participant::FailRendezvous>(hear(refused)));
  // The agent joins when its workers have ended, and hears of the refusal then.
  CHECK(sent<NodeJoined>(feed(Participant::JoinAsked{})).size() == 1);
  CHECK(has<Participant::FailRendezvous>(hear(refused)));
}

TEST_CASE_METHOD(ParticipantTest, "participant: a late restart of an older round changes nothing",
                 "[unit][rendezvous]") {
  run_round();
  RestartRound late{.round = 3, .life = 7};
  CHECK_FALSE(has<Participant::RestartWorkers>(hear(late)));
  CHECK(participant->phase() == Participant::Phase::Running);
}

// Found by seed 740 of the shapes simulation: the host was killed while the node waited for the
// store.
TEST_CASE_METHOD(ParticipantTest, "participant: a node that joins again begins no older round",
                 "[unit][rendezvous]") {
  connect();
  feed(Participant::JoinAsked{});
  const RoundComplete with_torchrun{.round = 4, .group_world_size = 2, .life = 7, .generation = 40};
  REQUIRE(has<Participant::ExchangeThroughStore>(hear(with_torchrun)));
  feed(Participant::ConnectionBroke{"the host was killed"});
  // The join tells the host that no workers run on this node.
  REQUIRE(sent<NodeJoined>(connect()).size() == 1);
  CHECK_FALSE(participant->exchanging(4));
  CHECK_FALSE(has<Participant::BeginRound>(feed(Participant::ExchangeDone{4})));
  RoundComplete next{.round = 5, .group_world_size = 2, .life = 7, .generation = 41};
  next.workers = WorkerRanks{};
  next.store = StoreAddress{"store", 29500};
  CHECK(has<Participant::BeginRound>(hear(next)));
}

/// Lets `time` pass, while every try to connect fails with `why`. Returns the actions meanwhile.
Participant::Actions fail_to_connect(ParticipantTest& test, Duration time,
                                     Participant::ConnectFailed::Why why) {
  Participant::Actions all = test.feed(Participant::ConnectFailed{why, "no"});
  const Instant end = test.now + time;
  while (test.now < end) {
    test.now += 100ms;
    Participant::Actions actions = test.feed(Participant::TimeHasPassed{});
    if (ParticipantTest::has<Participant::Connect>(actions)) {
      const auto more = test.feed(Participant::ConnectFailed{why, "no"});
      actions.insert(actions.end(), more.begin(), more.end());
    }
    all.insert(all.end(), actions.begin(), actions.end());
  }
  return all;
}

TEST_CASE_METHOD(ParticipantTest, "participant: workers run on while the connection is refused",
                 "[unit][rendezvous]") {
  using Why = Participant::ConnectFailed::Why;
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  CHECK_FALSE(has<Participant::RestartWorkers>(fail_to_connect(*this, 60s, Why::NobodyListens)));
}

TEST_CASE_METHOD(
    ParticipantTest,
    "participant: a refused connection after a silence is no evidence against the host",
    "[unit][rendezvous]") {
  using Why = Participant::ConnectFailed::Why;
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  // Rank 0 answers that the round is whole. Then the other nodes form another round, and the host's
  // process ends.
  CHECK_FALSE(has<Participant::RestartWorkers>(fail_to_connect(*this, 4s, Why::NoAnswer)));
  feed(Participant::PeerReached{40, 1});
  CHECK_FALSE(has<Participant::RestartWorkers>(fail_to_connect(*this, 2s, Why::NoAnswer)));
  CHECK(has<Participant::RestartWorkers>(fail_to_connect(*this, 6s, Why::NobodyListens)));
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: rank 0 answers when it has last heard all the others",
                 "[unit][rendezvous]") {
  using Why = Participant::ConnectFailed::Why;
  const auto reach_answer = [](const Participant::Actions& actions) -> std::optional<Instant> {
    std::optional<Instant> at;
    for (const auto& action : actions)
      if (const auto* set = std::get_if<Participant::SetReachAnswer>(&action)) at = set->whole_at;
    return at;
  };
  run_round(0, 3);
  feed(Participant::ConnectionBroke{"reset"});
  fail_to_connect(*this, 3s, Why::NoAnswer);
  CHECK_FALSE(reach_answer(feed(Participant::PeerReached{40, 1})));
  const Instant first = now;
  fail_to_connect(*this, 1s, Why::NoAnswer);
  CHECK(reach_answer(feed(Participant::PeerReached{40, 2})) == first);
  const Instant second = now;
  CHECK(reach_answer(feed(Participant::PeerReached{40, 1})) == second);
}

TEST_CASE_METHOD(ParticipantTest, "participant: the age of rank 0's knowledge counts",
                 "[unit][rendezvous]") {
  using Why = Participant::ConnectFailed::Why;
  run_round(1, 3);
  feed(Participant::ConnectionBroke{"reset"});
  CHECK_FALSE(has<Participant::RestartWorkers>(fail_to_connect(*this, 5s, Why::NoAnswer)));
  feed(Participant::ReachAnswered{40, true, 3s});
  CHECK_FALSE(has<Participant::RestartWorkers>(fail_to_connect(*this, 1800ms, Why::NoAnswer)));
  feed(Participant::ReachAnswered{40, true, 4900ms});  // Older than the answer before.
  CHECK(has<Participant::RestartWorkers>(fail_to_connect(*this, 400ms, Why::NoAnswer)));
}

/// The host's process is away for so long. Returns whether this node ends because of that.
bool gives_up(ParticipantTest& test, Duration length) {
  const auto actions =
      fail_to_connect(test, length, Participant::ConnectFailed::Why::NobodyListens);
  return ParticipantTest::has<Participant::EndJob>(actions) ||
         ParticipantTest::has<Participant::FailRendezvous>(actions);
}

struct AbsentHostTest : ParticipantTest {
  AbsentHostTest() : ParticipantTest(60s) {}
};

TEST_CASE_METHOD(AbsentHostTest, "participant: a pause of the machine is no absence of the host",
                 "[unit][rendezvous]") {
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  CHECK_FALSE(gives_up(*this, 30s));
  now += 8h;
  CHECK_FALSE(gives_up(*this, 25s));
  CHECK(gives_up(*this, 10s));
}

TEST_CASE_METHOD(ParticipantTest, "participant: a pause of the machine is no wait for a round",
                 "[unit][rendezvous]") {
  connect();
  feed(Participant::JoinAsked{});
  feed(Participant::ConnectionBroke{"reset"});
  CHECK_FALSE(gives_up(*this, 300s));
  now += 8h;
  CHECK_FALSE(gives_up(*this, 290s));
  CHECK(gives_up(*this, 20s));
}

/// Lets `time` pass at a host that welcomes the node and then breaks the connection. Returns the
/// number of connections.
int break_each_connection(ParticipantTest& test, Duration time, Participant::Actions& all) {
  int connections = 0;
  const Instant end = test.now + time;
  auto actions = test.feed(Participant::ConnectionBroke{"reset"});
  while (test.now < end) {
    all.insert(all.end(), actions.begin(), actions.end());
    if (ParticipantTest::has<Participant::Connect>(actions)) {
      ++connections;
      test.connect();
      actions = test.feed(Participant::ConnectionBroke{"reset"});
    } else {
      test.now += 10ms;
      actions = test.feed(Participant::TimeHasPassed{});
    }
  }
  return connections;
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: pauses grow between connections that break after the welcome",
                 "[unit][rendezvous]") {
  SECTION("in a round") {
    run_round();
  }
  SECTION("before the first one") {
    connect();
    REQUIRE(sent<NodeJoined>(feed(Participant::JoinAsked{})).size() == 1);
    hear(NativeWaiting{"1 of 2"});
  }
  Participant::Actions all;
  const int connections = break_each_connection(*this, 10s, all);
  CHECK(connections > 6);
  CHECK(connections < 20);
  int printed = 0;
  for (const auto& action : all)
    printed += std::holds_alternative<Participant::Print>(action) ? 1 : 0;
  CHECK(printed == 1);
  // The host answers again. So the next break is a new one: at once there is another connection.
  now += 2s;
  REQUIRE(has<Participant::Connect>(feed(Participant::TimeHasPassed{})));
  connect();
  if (participant->phase() == Participant::Phase::Running) hear(Resumed{{}, 4, 40, 7});
  hear(NativeAlive{});
  const auto broken = feed(Participant::ConnectionBroke{"reset"});
  CHECK(has<Participant::Connect>(broken));
  CHECK(has<Participant::Print>(broken));
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a node that finishes before its resume is answered waits for 60 s",
                 "[unit][rendezvous]") {
  using Why = Participant::ConnectFailed::Why;
  run_round();
  feed(Participant::ConnectionBroke{"reset"});
  REQUIRE(sent<NodeResumed>(connect()).size() == 1);
  feed(Participant::PartFinished{true, {}});
  feed(Participant::ConnectionBroke{"reset"});
  CHECK_FALSE(has<Participant::EndJob>(fail_to_connect(*this, 59s, Why::NobodyListens)));
  CHECK(has<Participant::EndJob>(fail_to_connect(*this, 2s, Why::NobodyListens)));
}

TEST_CASE_METHOD(ParticipantTest,
                 "participant: a node without workers does not wait for an agent that has ended",
                 "[unit][rendezvous]") {
  using Why = Participant::ConnectFailed::Why;
  feed(Participant::Connected{{.lease = 5s, .resumes = true}});
  feed(Participant::JoinAsked{});
  feed(Participant::ConnectionBroke{"reset"});
  CHECK_FALSE(
      has<Participant::FailRendezvous>(feed(Participant::ConnectFailed{Why::NoAnswer, "late"})));
  now += 1s;
  REQUIRE(has<Participant::Connect>(feed(Participant::TimeHasPassed{})));
  const auto actions = feed(Participant::ConnectFailed{Why::NobodyListens, "refused"});
  CHECK(has<Participant::FailRendezvous>(actions));
}

}  // namespace
}  // namespace muster::testing

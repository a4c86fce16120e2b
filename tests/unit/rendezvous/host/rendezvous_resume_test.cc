// Nodes that lose their connection and resume, and hosts that are restarted during a running round.

#include "tests/unit/rendezvous/host/rendezvous_resume_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE_METHOD(ResumeTest, "resume: a node on a new connection stays in its round",
                 "[unit][rendezvous]") {
  three_in_a_round();
  CHECK(after({}, ConnectionLost{{2}}).empty());
  const auto resumed = after(400ms, resume(12, "b", 1));
  REQUIRE(resumed.size() == 1);
  CHECK(sent<Resumed>(resumed).at(12).round == 0);
  CHECK(pass(3s, {1, 12, 3}).empty());
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  CHECK(rendezvous.participants() == 3);
}

TEST_CASE_METHOD(ResumeTest,
                 "resume: a node that joins after a resume gets the host's earlier answer again",
                 "[unit][rendezvous]") {
  three_in_a_round();
  const auto back = [this](std::uint32_t id, const std::string& addr) {
    NodeJoined event = joiner(id, addr);
    event.last_round = 0;
    return after({}, event);
  };
  after({}, WorkersFailed{{2}, 0, "rank 0 exited with 1"});
  back(2, "b");
  back(3, "c");
  // The connection is already broken on the node's side, so the node never gets this message.
  REQUIRE(sent<PrepareStore>(back(1, "a")).contains(1));
  CHECK(sent<Rejoin>(after({}, resume(11, "a", 0))).contains(11));
  CHECK(sent<PrepareStore>(back(11, "a")).contains(11));
  CHECK(sent<PrepareStore>(back(11, "a")).empty());
}

TEST_CASE_METHOD(ResumeTest, "resume: a closed connection makes a node lost after the grace",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, ConnectionLost{{2}});
  REQUIRE(rendezvous.next_deadline() == now + 500ms);
  CHECK(after(499ms, RendezvousTimePassed{}).empty());
  const auto lost = after(1ms, RendezvousTimePassed{});
  REQUIRE(sent<RestartRound>(lost).size() == 2);
  CHECK(sent<RestartRound>(lost).at(1).cause == RestartCause::NodeLost);
  // The node resumes too late: the others have gone on without it.
  const auto late = after({}, resume(12, "b", 1));
  REQUIRE(late.size() == 1);
  CHECK(sent<Rejoin>(late).at(12).life == 7);
}

TEST_CASE_METHOD(ResumeTest, "resume: the others have gone on only if they have",
                 "[unit][rendezvous]") {
  three_in_a_round();
  const auto why = [&](std::uint32_t id, const std::string& addr, int rank) {
    return sent<Rejoin>(after({}, resume(id, addr, rank))).at(id).why;
  };
  SECTION("they have") {
    after({}, ConnectionLost{{3}});
    pass(1s, {1, 2});
    for (const auto& [id, addr] : std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}}) {
      NodeJoined again = joiner(id, addr);
      again.last_round = 0;
      const auto actions = after({}, again);
      if (id == 2) ready(actions);
    }
    REQUIRE(rendezvous.phase() == Rendezvous::Phase::Running);
    CHECK(why(13, "c", 2) == "the other nodes have gone on without this node");
  }
  SECTION("all were lost, each in its own way") {
    after({}, ConnectionLost{{1}});
    pass(1s, {2, 3});
    after({}, ConnectionLost{{2}});
    pass(1s, {3});
    pass(6s, {});
    REQUIRE(rendezvous.members() == 0);
    CHECK(why(12, "b", 1) == "its round has ended, and this node was lost: its connection closed");
    CHECK(why(13, "c", 2) == "its round has ended, and this node was lost: not heard for 5 s");
  }
}

TEST_CASE_METHOD(ResumeTest, "resume: a node that does not announce a resume is lost at once",
                 "[unit][rendezvous]") {
  three_in_a_round();
  NodeJoined older = joiner(4, "d");
  older.resumes = false;
  after({}, older);
  CHECK(rendezvous.members() == 4);
  after({}, ConnectionLost{{4}});
  CHECK(rendezvous.members() == 3);
}

TEST_CASE_METHOD(ResumeTest, "resume: a node that missed the restart is told to join again",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, ConnectionLost{{2}});
  REQUIRE(sent<RestartRound>(after({}, WorkersFailed{{1}, 0, "rank 0 exited with 1"})).size() == 2);
  const auto back = sent<Rejoin>(after(100ms, resume(12, "b", 1)));
  REQUIRE(back.contains(12));
  CHECK(back.at(12).round == 0);
  CHECK_THAT(back.at(12).why, Catch::Contains("rank 0 exited with 1"));
  NodeJoined again = joiner(12, "b");
  again.last_round = back.at(12).round;
  after({}, again);
  for (const std::uint32_t id : {1U, 3U}) {
    NodeJoined other = joiner(id, id == 1 ? "a" : "c");
    other.last_round = 0;
    const auto actions = after({}, other);
    if (id == 3) CHECK(sent<RoundComplete>(ready(actions)).at(12).restart_count == 1);
  }
  CHECK(rendezvous.generation() == 2);
}

TEST_CASE_METHOD(ResumeTest, "resume: a round is not complete while a node of it is absent",
                 "[unit][rendezvous]") {
  after({}, joiner(1, "a"));
  after({}, joiner(2, "b"));
  after({}, ConnectionLost{{1}});
  CHECK(after({}, joiner(3, "c")).empty());
  const auto back = after(100ms, joiner(11, "a"));
  CHECK(sent<PrepareStore>(back).size() == 1);
}

TEST_CASE_METHOD(ResumeTest, "resume: a node that finished without a connection counts as finished",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, NodeFinished{{1}, 0, true, ""});
  after({}, NodeFinished{{3}, 0, true, ""});
  after({}, ConnectionLost{{2}});
  NodeResumed done = resume(12, "b", 1);
  done.state = NodeResumed::State::Finished;
  const auto ended = sent<RunEnded>(after(100ms, done));
  REQUIRE(ended.contains(12));
  CHECK(ended.at(12).succeeded);
}

TEST_CASE_METHOD(ResumeTest, "resume: a node that has stopped its workers ends the round",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, ConnectionLost{{2}});
  NodeResumed stopped = resume(12, "b", 1);
  stopped.state = NodeResumed::State::Stopped;
  CHECK(sent<RestartRound>(after(100ms, stopped)).size() == 3);
  // If its workers had failed, the node would report that next.
  CHECK(rendezvous.restarts_used() == 0);
}

TEST_CASE_METHOD(ResumeTest, "resume: a new host adopts the round when all its nodes are back",
                 "[unit][rendezvous]") {
  CHECK(after({}, resume(1, "c", 2, kOldLife, 5)).empty());
  CHECK_THAT(std::string(rendezvous.reason()), Catch::Contains("1 of its 3 nodes are back"));
  CHECK(after(1s, resume(2, "a", 0, kOldLife, 5)).empty());
  const auto all = after(1s, resume(3, "b", 1, kOldLife, 5));
  REQUIRE(sent<Resumed>(all).size() == 3);
  for (const auto& [id, resumed] : sent<Resumed>(all)) {
    CHECK(resumed.round == 5);
    CHECK(resumed.generation == 9);
    CHECK(resumed.life == 7);
  }
  REQUIRE(recovered(all) != nullptr);
  CHECK(recovered(all)->whole);
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  CHECK(rendezvous.round() == 5);
  CHECK(rendezvous.restarts_used() == 1);
  CHECK(pass(10s, {1, 2, 3}).empty());
  // The adopted round is a normal round: the next one has the next numbers, and the ranks stay.
  REQUIRE(sent<RestartRound>(after({}, WorkersFailed{{3}, 5, "x"})).size() == 3);
  RendezvousActions next;
  for (const auto& [id, addr] :
       std::map<std::uint32_t, std::string>{{1, "c"}, {2, "a"}, {3, "b"}}) {
    NodeJoined again = joiner(id, addr);
    again.last_round = 5;
    again.life = 7;
    next = after({}, again);
  }
  const auto complete = sent<RoundComplete>(ready(next));
  REQUIRE(complete.size() == 3);
  CHECK(complete.at(1).group_rank.value == 2);
  CHECK(complete.at(2).group_rank.value == 0);
  CHECK(complete.at(2).round == 6);
  CHECK(complete.at(2).generation == 10);
  CHECK(complete.at(2).restart_count == 2);
}

TEST_CASE_METHOD(ResumeTest, "resume: without one of its nodes the round is given up in time",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 5));
  after({}, resume(2, "b", 1, kOldLife, 5));
  auto all = pass(5900ms, {1, 2});
  CHECK(all.empty());
  append(all, pass(100ms, {1, 2}));
  REQUIRE(sent<Rejoin>(all).size() == 2);
  CHECK_THAT(sent<Rejoin>(all).at(1).why, Catch::Contains("not come back in time: 2"));
  REQUIRE(recovered(all) != nullptr);
  CHECK_FALSE(recovered(all)->whole);
  // As in any restart, the next round does not wait for other nodes.
  for (const auto& [id, addr] : std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}}) {
    NodeJoined again = joiner(id, addr);
    again.last_round = 5;
    again.life = 7;
    all = after({}, again);
  }
  const auto complete = sent<RoundComplete>(ready(all));
  REQUIRE(complete.size() == 2);
  CHECK(complete.at(1).round == 6);
  CHECK(complete.at(1).generation == 10);
  CHECK(complete.at(1).restart_count == 1);
  CHECK(sent<Rejoin>(after({}, resume(3, "c", 2, kOldLife, 5))).contains(3));
}

TEST_CASE_METHOD(ResumeTest, "resume: a failure without a connection is counted by the next host",
                 "[unit][rendezvous]") {
  NodeResumed failed = resume(2, "b", 1, kOldLife, 5);
  failed.state = NodeResumed::State::Stopped;
  failed.failure = "rank 1 exited with 7";
  after({}, resume(1, "a", 0, kOldLife, 5));
  after({}, failed);
  SECTION("all are back") {
    const auto all = after({}, resume(3, "c", 2, kOldLife, 5));
    CHECK(sent<Resumed>(all).size() == 3);
    CHECK(sent<RestartRound>(all).size() == 3);
    after({}, WorkersFailed{{2}, 5, failed.failure});  // The node answers Resumed.
  }
  SECTION("one is missing") {
    CHECK(sent<Rejoin>(pass(7s, {1, 2})).size() == 2);
  }
  CHECK(rendezvous.restarts_used() == 2);
}

TEST_CASE_METHOD(ResumeTest, "resume: a restart is counted once, whichever nodes learned of it",
                 "[unit][rendezvous]") {
  // The earlier host knew that b's workers had failed, and was killed while it notified the others.
  NodeResumed failed = resume(2, "b", 1, kOldLife, 5);
  failed.state = NodeResumed::State::Stopped;
  failed.failure = "rank 1 exited with 7";
  NodeJoined told = joiner(1, "a");
  told.last_round = 5;
  told.life = kOldLife;
  told.generation = generation;
  told.restart_count = 2;
  SECTION("the node that was told joins first") {
    after({}, told);
    after({}, failed);
    CHECK(sent<Rejoin>(pass(7s, {1, 2})).at(2).restart_count == 2);
  }
  SECTION("the node that failed resumes first") {
    after({}, failed);
    CHECK(sent<Rejoin>(after({}, told)).at(2).restart_count == 2);
  }
  SECTION("all were told") {
    after({}, told);
    told.from = {2};
    told.name.addr = "b";
    told.instance = "of b";
    after({}, told);
  }
  SECTION("a node reports more restarts than are allowed") {
    told.restart_count = 1'000'000;
    after({}, told);
  }
  CHECK(rendezvous.restarts_used() == 2);
}

TEST_CASE_METHOD(ResumeTest,
                 "resume: a failure without a connection ends a run without restarts left",
                 "[unit][rendezvous]") {
  NodeResumed failed = resume(2, "b", 1, kOldLife, 5);
  failed.state = NodeResumed::State::Stopped;
  failed.failure = "rank 1 exited with 7";
  failed.restart_count = 2;
  after({}, resume(1, "a", 0, kOldLife, 5));
  after({}, failed);
  const auto ended = sent<RunEnded>(pass(7s, {1, 2}));
  REQUIRE(ended.contains(1));
  CHECK_THAT(ended.at(1).why, Catch::Contains("rank 1 exited with 7; all 2 restarts"));
}

TEST_CASE_METHOD(ResumeTest, "resume: restarts of a run that has ended are not counted",
                 "[unit][rendezvous]") {
  NodeJoined old = joiner(1, "a");
  old.restart_count = 2;  // Without a generation, so the count is ignored.
  after({}, old);
  CHECK(rendezvous.restarts_used() == 0);
}

TEST_CASE_METHOD(ResumeTest, "resume: a round that a node has left is not adopted",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 5));
  SECTION("it joins") {
    NodeJoined left = joiner(2, "b");
    left.last_round = 5;
    left.life = kOldLife;
    left.generation = 9;
    CHECK(sent<Rejoin>(after({}, left)).size() == 1);
  }
  SECTION("its workers are stopped") {
    NodeResumed stopped = resume(2, "b", 1, kOldLife, 5);
    stopped.state = NodeResumed::State::Stopped;
    CHECK(sent<Rejoin>(after({}, stopped)).size() == 2);
  }
  SECTION("it knows of a newer round") {
    NodeResumed newer = resume(2, "b", 1, kOldLife, 6);
    newer.join.generation = 10;
    CHECK(sent<Rejoin>(after({}, newer)).size() == 2);
  }
  CHECK_FALSE(rendezvous.recovering());
}

TEST_CASE_METHOD(ResumeTest, "resume: a node whose resume does not fit the round must join again",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 5));
  NodeResumed other = resume(2, "b", 0, kOldLife, 5);  // Another node has this rank.
  CHECK(sent<Rejoin>(after({}, other)).contains(2));
  other = resume(3, "c", 1, kOldLife, 4);
  other.join.generation = 8;
  CHECK(sent<Rejoin>(after({}, other)).contains(3));
  other = resume(4, "d", 1, kOldLife, 5);
  other.group_world_size = 4;
  CHECK(sent<Rejoin>(after({}, other)).contains(4));
  CHECK(rendezvous.recovering());
}

TEST_CASE_METHOD(ResumeTest, "resume: newcomers wait while a round is taken up again",
                 "[unit][rendezvous]") {
  after({}, joiner(8, "x"));
  after({}, resume(1, "a", 0, kOldLife, 5));
  after({}, resume(2, "b", 1, kOldLife, 5));
  CHECK(after({}, joiner(9, "y")).empty());
  CHECK(sent<Resumed>(after({}, resume(3, "c", 2, kOldLife, 5))).size() == 3);
  CHECK(rendezvous.participants() == 3);
  CHECK(rendezvous.members() == 5);
}

TEST_CASE_METHOD(ResumeTest, "resume: a node that resumes twice is one node",
                 "[unit][rendezvous]") {
  after({}, resume(1, "a", 0, kOldLife, 5));
  after({}, ConnectionLost{{1}});
  after({}, resume(4, "a", 0, kOldLife, 5));
  after({}, resume(2, "b", 1, kOldLife, 5));
  const auto all = sent<Resumed>(after({}, resume(3, "c", 2, kOldLife, 5)));
  CHECK(all.size() == 3);
  CHECK(all.contains(4));
  // The answer was lost, so the node still sends the old life.
  after({}, ConnectionLost{{4}});
  CHECK(sent<Resumed>(after({}, resume(5, "a", 0, kOldLife, 5))).contains(5));
  CHECK(pass(3s, {5, 2, 3}).empty());
}

TEST_CASE_METHOD(ResumeTest, "resume: a host that has made a round adopts no other",
                 "[unit][rendezvous]") {
  three_in_a_round();
  CHECK(sent<Rejoin>(after({}, resume(9, "z", 1, kOldLife, 5))).contains(9));
  CHECK(rendezvous.participants() == 3);
}

TEST_CASE_METHOD(ResumeTest, "resume: the next generation is above all credible ones of the nodes",
                 "[unit][rendezvous]") {
  after({}, joiner(1, "a"));
  NodeJoined experienced = joiner(2, "b");
  experienced.generation = 40;
  after({}, experienced);
  NodeJoined liar = joiner(3, "c");
  liar.generation = kMaxGeneration + 1;
  const auto complete = sent<RoundComplete>(ready(after({}, liar)));
  CHECK(complete.at(1).generation == 41);
}

TEST_CASE_METHOD(ResumeTest, "resume: a restart that was asked for in an older round has no effect",
                 "[unit][rendezvous]") {
  three_in_a_round();
  CHECK(after({}, RestartRequested{{1}, "late", 4}).empty());
  CHECK(sent<RestartRound>(after({}, RestartRequested{{1}, "now", 0})).size() == 3);
}

TEST_CASE_METHOD(ResumeTest, "resume: a round of a run that has ended is not taken up again",
                 "[unit][rendezvous]") {
  rendezvous =
      Rendezvous(RendezvousSetup{.run = settings, .life = 7, .ended_generation = generation});
  const auto late = after({}, resume(1, "a", 0, kOldLife));
  REQUIRE(sent<Rejoin>(late).contains(1));
  CHECK_THAT(sent<Rejoin>(late).at(1).why, Catch::Contains("has ended"));
  CHECK(rendezvous.members() == 0);
  ++generation;  // The generation of a round that the ended run did not have.
  after({}, resume(1, "a", 0, kOldLife));
  CHECK(rendezvous.recovering());
}

TEST_CASE_METHOD(ResumeTest, "resume: a recorded run takes up no round of a run that has ended",
                 "[unit][rendezvous]") {
  RunRecord record{.settings = settings, .life = 7, .highest_generation = generation};
  SECTION("an older muster has recorded it") {}
  SECTION("the record has the rounds of the other run") {
    record.ended_generation = generation;
    record.had_round = true;
  }
  rendezvous.restore(record, {}, now);
  CHECK(sent<Rejoin>(after({}, resume(1, "a", 0, kOldLife))).contains(1));
  CHECK_FALSE(rendezvous.recovering());
}

TEST_CASE_METHOD(ResumeTest,
                 "resume: a node that has left the recorded round does not get it again",
                 "[unit][rendezvous]") {
  rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 7, .recorded = true});
  three_in_a_round();
  const auto change = rendezvous.take_changes(now);
  REQUIRE(change);
  // The earlier host told the node to join again, which is not recorded.
  rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 8, .recorded = true});
  rendezvous.restore(change->record, change->members, now);
  NodeJoined again = joiner(11, "a");
  again.generation = generation;
  CHECK(sent<RoundComplete>(after({}, again)).empty());
  CHECK(sent<Rejoin>(after({}, resume(12, "b", 1))).contains(12));
}

TEST_CASE_METHOD(ResumeTest,
                 "resume: a host that is killed while a round is taken up goes on with it",
                 "[unit][rendezvous]") {
  rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 7, .recorded = true});
  after({}, resume(1, "a", 0, kOldLife));
  REQUIRE(rendezvous.recovering());
  const auto change = rendezvous.take_changes(now);
  REQUIRE(change);
  rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 7, .recorded = true});
  rendezvous.restore(change->record, change->members, now);
  for (const auto& [id, addr] : std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}})
    CHECK(sent<Rejoin>(after({}, resume(id, addr, static_cast<int>(id) - 1, kOldLife))).empty());
  CHECK(sent<Resumed>(after({}, resume(3, "c", 2, kOldLife))).size() == 3);
}

TEST_CASE_METHOD(ResumeTest, "resume: a generation too close to the maximum is ignored",
                 "[unit][rendezvous]") {
  NodeJoined liar = joiner(1, "a");
  SECTION("of a node that joins") {
    liar.generation = GENERATE(as<std::int64_t>{}, kMaxGeneration, kMaxReportedGeneration + 1);
    after({}, liar);
  }
  SECTION("of a node that resumes") {
    NodeResumed resumed = resume(1, "a", 0, kOldLife, 5);
    resumed.join.generation = kMaxGeneration;
    CHECK(sent<Rejoin>(after({}, resumed)).contains(1));
    resumed.join.generation = generation;
    resumed.join.last_round = kMaxGeneration - 1;
    CHECK(sent<Rejoin>(after({}, resumed)).contains(1));
    after({}, liar);
  }
  CHECK_FALSE(rendezvous.recovering());
  after({}, joiner(2, "b"));
  const auto complete = sent<RoundComplete>(ready(after({}, joiner(3, "c"))));
  REQUIRE(complete.size() == 3);
  CHECK(complete.at(1).generation == 1);
  for (const auto& [id, message] : complete)
    CHECK(decode_native_message(encode(NativeMessage(message)).substr(kNativeLengthBytes))
              .has_value());
}

TEST_CASE_METHOD(
    ResumeTest, "resume: after the highest number that is believed, later hosts take up the rounds",
    "[unit][rendezvous]") {
  constexpr std::int64_t kClock = 1'790'000'000'000;
  constexpr std::int64_t kMax = kClock + kMaxGenerationsAhead;
  const auto begin = [&](std::int64_t clock) {
    rendezvous = Rendezvous(RendezvousSetup{.run = settings,
                                            .life = 7,
                                            .generation_floor = clock,
                                            .most_reported = clock + kMaxGenerationsAhead});
  };
  const auto all_resume = [&](std::int64_t round) {
    after({}, resume(1, "a", 0, kOldLife, round));
    after({}, resume(2, "b", 1, kOldLife, round));
    return sent<Resumed>(after({}, resume(3, "c", 2, kOldLife, round))).size() == 3;
  };
  SECTION("a generation") {
    begin(kClock);
    NodeJoined liar = joiner(1, "a");
    liar.generation = kMax;
    after({}, liar);
    after({}, joiner(2, "b"));
    generation = sent<RoundComplete>(ready(after({}, joiner(3, "c")))).at(1).generation;
    CHECK(generation == kMax + 1);
    begin(kClock + 200);
    CHECK(all_resume(0));
  }
  SECTION("a number of a round") {
    generation = kClock + 3;
    begin(kClock + 100);
    CHECK(all_resume(kMax + 100));
    begin(kClock + 200);
    CHECK(all_resume(kMax + 101));
  }
}

}  // namespace
}  // namespace muster::testing

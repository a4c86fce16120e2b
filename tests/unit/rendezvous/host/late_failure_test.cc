// A failure that a node reports when it resumes: it is counted once for its round, until the next
// round has begun.

#include "tests/unit/rendezvous/host/rendezvous_resume_fixture.h"

namespace muster::testing {
namespace {

struct LateFailureTest : ResumeTest {
  explicit LateFailureTest(int max_restarts = 2)
      : ResumeTest({.min_nodes = 2, .max_nodes = 3, .max_restarts = max_restarts}) {}

  /// The workers of the node failed in the round while the node could not reach the host.
  NodeResumed failed(std::uint32_t id, const std::string& addr, std::int64_t life = 7,
                     std::int64_t round = 0) const {
    NodeResumed event = resume(id, addr, addr.front() - 'a', life, round);
    event.restart_count = 0;
    event.state = NodeResumed::State::Stopped;
    event.failure = "rank " + std::to_string(event.group_rank) + " exited with 7";
    return event;
  }
  /// The node has stopped its workers, because it took itself for cut off, and joins.
  NodeJoined fenced(std::uint32_t id, const std::string& addr, std::int64_t life = 7,
                    std::int64_t round = 0) const {
    NodeJoined event = joiner(id, addr);
    event.last_round = round;
    event.life = life;
    event.generation = generation;
    return event;
  }
  static const FailureCounted* counted(const RendezvousActions& actions) {
    for (const auto& action : actions)
      if (const auto* found = std::get_if<FailureCounted>(&action)) return found;
    return nullptr;
  }
  /// All three nodes are in a round of a host that records its changes.
  void three_recorded() {
    rendezvous = Rendezvous(setup());
    three_in_a_round();
  }
  void restart_host() {
    if (auto change = rendezvous.take_changes(now)) {
      record = change->record;
      for (const MemberRecord& member : change->members)
        members[member.name] = member;
      for (const NodeName& name : change->removed)
        members.erase(name);
    }
    std::vector<MemberRecord> recorded;
    for (const auto& [name, member] : members)
      recorded.push_back(member);
    rendezvous = Rendezvous(setup());
    rendezvous.restore(record, recorded, now);
  }
  RendezvousSetup setup() const { return {.run = settings, .life = 7, .recorded = true}; }

  RunRecord record;
  std::map<NodeName, MemberRecord> members;
};

struct NoRestartsTest : LateFailureTest {
  NoRestartsTest() : LateFailureTest(0) {}
};

TEST_CASE_METHOD(LateFailureTest, "late failure: the first node back does not decide what it costs",
                 "[unit][rendezvous]") {
  three_in_a_round();
  SECTION("the failed node") {
    const auto restarts = sent<RestartRound>(after({}, failed(11, "a")));
    REQUIRE(restarts.size() == 3);
    CHECK(restarts.at(11).cause == RestartCause::WorkersFailed);
    after({}, fenced(12, "b"));
  }
  SECTION("a fenced node") {
    CHECK(sent<RestartRound>(after({}, fenced(12, "b"))).at(1).cause == RestartCause::Requested);
    const auto back = after({}, failed(11, "a"));
    CHECK(sent<Rejoin>(back).at(11).restart_count == 1);
    CHECK_THAT(sent<Rejoin>(back).at(11).why, Catch::Contains("the round has ended"));
    REQUIRE(counted(back) != nullptr);
    CHECK(counted(back)->who.addr == "a");
    CHECK(counted(back)->what == "rank 0 exited with 7");
  }
  SECTION("none: the failed node is lost before") {
    after({}, ConnectionLost{{1}});
    CHECK(sent<RestartRound>(after(500ms, RendezvousTimePassed{})).size() == 2);
    CHECK(sent<Rejoin>(after({}, failed(11, "a"))).at(11).restart_count == 1);
  }
  CHECK(rendezvous.restarts_used() == 1);
  // The same failure again, after a lost answer, and another failure of the same round.
  after({}, failed(21, "a"));
  after({}, failed(13, "c"));
  CHECK(rendezvous.restarts_used() == 1);
}

TEST_CASE_METHOD(LateFailureTest, "late failure: a lost node that reports it is told to resume",
                 "[unit][rendezvous]") {
  three_in_a_round();
  pass(6s, {2, 3});
  REQUIRE(rendezvous.members() == 2);
  // These messages were on their way for longer than the lease.
  CHECK(sent<NotAMember>(after({}, WorkersFailed{{1}, 0, "rank 0 exited with 7"})).contains(1));
  after({}, fenced(1, "a"));
  CHECK(sent<Rejoin>(after({}, failed(1, "a"))).at(1).restart_count == 1);
}

TEST_CASE_METHOD(NoRestartsTest, "late failure: it costs nothing when the next round has begun",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, ConnectionLost{{1}});
  after(500ms, RendezvousTimePassed{});
  after({}, fenced(2, "b"));
  REQUIRE(sent<RoundComplete>(ready(after({}, fenced(3, "c")))).size() == 2);
  const auto back = after({}, failed(11, "a"));
  CHECK(sent<Rejoin>(back).at(11).restart_count == 0);
  CHECK(sent<RestartRound>(back).empty());
  CHECK(sent<RunEnded>(back).empty());
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
}

TEST_CASE_METHOD(LateFailureTest, "late failure: a round that ended by a failure has cost its one",
                 "[unit][rendezvous]") {
  three_in_a_round();
  after({}, ConnectionLost{{1}});
  after({}, WorkersFailed{{2}, 0, "rank 1 exited with 7"});
  const auto back = after(100ms, failed(11, "a"));
  CHECK(sent<Rejoin>(back).at(11).restart_count == 1);
  CHECK(counted(back) == nullptr);
}

TEST_CASE_METHOD(NoRestartsTest, "late failure: it ends a run without restarts left, for all nodes",
                 "[unit][rendezvous]") {
  three_in_a_round();
  RendezvousActions actions;
  SECTION("the failed node is a member") {
    after({}, fenced(12, "b"));
    actions = after({}, failed(11, "a"));
  }
  SECTION("it was lost") {
    after({}, ConnectionLost{{1}});
    after(500ms, RendezvousTimePassed{});
    after({}, fenced(12, "b"));
    actions = after({}, failed(11, "a"));
  }
  const auto ended = sent<RunEnded>(actions);
  CHECK(ended.size() == 3);
  REQUIRE(ended.contains(11));
  REQUIRE(ended.contains(12));
  for (const auto& [id, message] : ended) {
    CHECK_FALSE(message.succeeded);
    CHECK(message.who->addr == "a");
    CHECK_THAT(message.why, Catch::Contains("rank 0 exited with 7 (--max-restarts=0)"));
  }
  // The run has ended: another failure of the round changes nothing.
  const auto told = sent<RunEnded>(after({}, failed(13, "c")));
  REQUIRE(told.contains(13));
  CHECK(told.at(13).who->addr == "a");
}

TEST_CASE_METHOD(LateFailureTest, "late failure: the record tells whether it was counted",
                 "[unit][rendezvous]") {
  three_recorded();
  SECTION("none yet") {
    restart_host();
    after({}, fenced(12, "b"));
    restart_host();
    CHECK(rendezvous.restarts_used() == 0);
    CHECK(sent<Rejoin>(after({}, failed(11, "a"))).at(11).restart_count == 1);
  }
  SECTION("counted while the round ran") {
    after({}, WorkersFailed{{1}, 0, "rank 0 exited with 7"});
  }
  SECTION("counted when the node was back") {
    restart_host();
    CHECK(sent<RestartRound>(after({}, failed(11, "a"))).size() == 1);
  }
  restart_host();
  CHECK(rendezvous.restarts_used() == 1);
  after({}, failed(21, "a"));
  after({}, failed(13, "c"));
  CHECK(rendezvous.restarts_used() == 1);
}

TEST_CASE_METHOD(LateFailureTest,
                 "late failure: an older muster has not recorded whether it was counted",
                 "[unit][rendezvous]") {
  three_recorded();
  restart_host();
  record.uncounted_generation.reset();
  restart_host();
  after({}, fenced(12, "b"));
  after({}, failed(11, "a"));
  CHECK(rendezvous.restarts_used() == 1);
}

TEST_CASE_METHOD(LateFailureTest, "late failure: a host without a record counts it, too",
                 "[unit][rendezvous]") {
  SECTION("all nodes resume") {
    after({}, resume(2, "b", 1, kOldLife, 5));
    after({}, failed(1, "a", kOldLife, 5));
    NodeResumed other = failed(3, "c", kOldLife, 5);
    const auto all = after({}, other);
    CHECK(sent<Resumed>(all).size() == 3);
    REQUIRE(sent<RestartRound>(all).size() == 3);
    CHECK(sent<RestartRound>(all).at(2).who.addr == "a");
    after({}, WorkersFailed{{1}, 5, "rank 0 exited with 7"});
    CHECK(rendezvous.restarts_used() == 2);  // b began the round with one restart used.
    return;
  }
  SECTION("the round was given up before") {
    NodeResumed running = resume(2, "b", 1, kOldLife, 5);
    running.restart_count = 0;
    after({}, running);
    CHECK(sent<Rejoin>(after({}, fenced(3, "c", kOldLife, 5))).contains(2));
    CHECK(counted(after({}, failed(1, "a", kOldLife, 5))) != nullptr);
  }
  SECTION("a node of an older round is back first") {
    NodeResumed older = resume(4, "d", 1, kOldLife, 4);
    older.join.generation = generation - 1;
    older.restart_count = 0;
    after({}, older);
    CHECK(sent<Rejoin>(after({}, failed(1, "a", kOldLife, 5))).contains(4));
  }
  CHECK(rendezvous.restarts_used() == 1);
  after({}, failed(11, "a", kOldLife, 5));
  after({}, failed(13, "c", kOldLife, 5));
  CHECK(rendezvous.restarts_used() == 1);
}

TEST_CASE_METHOD(LateFailureTest,
                 "late failure: a count that a node knows from an earlier host is not added to",
                 "[unit][rendezvous]") {
  three_recorded();
  restart_host();
  // The earlier host could not record that it had counted the failure, and has told b.
  NodeJoined told = fenced(12, "b");
  told.restart_count = 1;
  after({}, told);
  after({}, failed(11, "a"));
  CHECK(rendezvous.restarts_used() == 1);
}

}  // namespace
}  // namespace muster::testing

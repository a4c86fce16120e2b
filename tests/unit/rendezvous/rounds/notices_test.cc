// A node will go: who is told, when the round ends, and what follows.

#include "rendezvous/rounds/notice.h"
#include "tests/unit/rendezvous/host/rendezvous_resume_fixture.h"

namespace muster::testing {
namespace {

using OperatorWhat = OperatorAsked::What;

struct NoticeTest : RendezvousTest {
  explicit NoticeTest(RunSettings run = {.min_nodes = 2, .max_nodes = 4, .max_restarts = 1},
                      int nodes = 4)
      : RendezvousTest(run) {
    RendezvousActions last;
    for (int i = 1; i <= nodes; ++i)
      last = comes(static_cast<std::uint32_t>(i), std::string(1, static_cast<char>('a' + i - 1)));
    if (nodes < run.max_nodes) last = after(run.last_call_timeout, RendezvousTimePassed{});
    REQUIRE(sent<RoundComplete>(ready(last)).size() == static_cast<std::size_t>(nodes));
  }
  RendezvousActions comes(std::uint32_t id, const std::string& addr, bool spare = false) {
    NodeJoined event = joiner(id, addr);
    event.last_round = rendezvous.round();
    event.takes_notices = true;
    event.spare = spare;
    return after({}, event);
  }
  RendezvousActions notified(std::uint32_t id, Duration left, std::string reason = "spot") {
    return after({}, NodeNotified{{id}, left, std::move(reason), 1'000});
  }
  RendezvousActions saved(std::uint32_t id) {
    return after({}, NodeSaved{{id}, rendezvous.round()});
  }
  static const RunEnded* ended(const RendezvousActions& actions) {
    for (const auto& action : actions)
      if (const auto* end = std::get_if<RunEnded>(&action)) return end;
    return nullptr;
  }
  NodeView node(const std::string& addr) {
    for (NodeView& each : rendezvous.view(0, 99, now).nodes)
      if (each.name.addr == addr) return each;
    FAIL("there is no node " << addr);
    return {};
  }
};

struct FixedJob : NoticeTest {  // It cannot go on without any of its nodes.
  FixedJob() : NoticeTest({.min_nodes = 3, .max_nodes = 3, .max_restarts = 1}, 3) {}
};

}  // namespace

TEST_CASE_METHOD(NoticeTest, "notice: every node of the round is told", "[unit][rendezvous]") {
  const auto told = sent<PreemptionNotice>(notified(2, 60s));
  REQUIRE(told.size() == 4);
  for (const auto& [id, message] : told) {
    CHECK(message.left == 60s);
    CHECK(message.reason == "spot");
    CHECK(message.nodes == std::vector<std::string>{"b_1_0"});
    CHECK(message.doomed == 1);
    CHECK(message.ranks == std::vector<std::pair<int, int>>{{2, 3}});  // Two workers each.
    CHECK(message.this_node == (id == 2));
    CHECK_FALSE(message.stops);  // Three others are enough.
  }
  CHECK(node("b").notice->reason == "spot");
  CHECK(node("b").notice->deadline_ms == 1'000);
  CHECK(rendezvous.view(0, 9, now).notice->silent_total == 4);
  CHECK_THAT(std::string(rendezvous.reason()),
             Catch::Contains("b_1_0 will go (spot); 0 of 4 nodes have saved, not yet a_1_0") &&
                 Catch::Contains("the round restarts without them"));
  // The node says it again after each resume.
  CHECK(sent<PreemptionNotice>(notified(2, 60s)).empty());
}

TEST_CASE_METHOD(NoticeTest, "notice: when all have answered, the round restarts without the node",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  for (const std::uint32_t id : {1, 3, 2})
    CHECK(sent<RestartRound>(saved(id)).empty());
  CHECK(rendezvous.view(0, 9, now).notice->saved == 3);
  const auto restarts = sent<RestartRound>(saved(4));
  REQUIRE(restarts.size() == 4);
  CHECK(restarts.at(1).cause == RestartCause::Notice);
  CHECK(restarts.at(1).who.addr == "b");
  CHECK(restarts.at(1).what == "it will go (spot): all nodes have saved");
  CHECK(rendezvous.restarts_used() == 0);
  comes(2, "b");
  comes(1, "a");
  comes(3, "c");
  const auto complete = sent<RoundComplete>(ready(comes(4, "d")));
  CHECK(complete.size() == 3);
  CHECK_FALSE(complete.contains(2));
  CHECK(node("b").state == NodeState::KeptOut);
  CHECK_THAT(rendezvous.reason_for({2}), Catch::Contains("this node will go (spot)"));
  // The deadline passes, and the node goes: that concerns nobody.
  CHECK(sent<RestartRound>(pass(90s, {1, 2, 3, 4})).empty());
  CHECK(sent<RestartRound>(after({}, NodeLeft{{2}})).empty());
  CHECK(rendezvous.participants() == 3);
}

TEST_CASE_METHOD(NoticeTest, "notice: without all answers the round ends at the deadline",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  saved(1);
  saved(2);
  CHECK(sent<RestartRound>(pass(59s, {1, 2, 3, 4})).empty());
  CHECK(rendezvous.next_deadline() == now + 1s);
  const auto restarts = sent<RestartRound>(pass(1s, {1, 2, 3, 4}));
  REQUIRE(restarts.size() == 4);
  CHECK_THAT(restarts.at(1).what, Catch::Contains("2 nodes have not answered"));
}

TEST_CASE_METHOD(FixedJob, "notice: a job that cannot go on without the node ends",
                 "[unit][rendezvous]") {
  CHECK(sent<PreemptionNotice>(notified(3, 60s)).at(1).stops);
  saved(1);
  saved(2);
  const auto actions = saved(3);
  REQUIRE(ended(actions));
  CHECK_FALSE(ended(actions)->succeeded);
  CHECK(ended(actions)->preempted);
  CHECK_FALSE(ended(actions)->who);
  CHECK_THAT(ended(actions)->why, Catch::StartsWith("node c_1_0 will go (spot)"));
  CHECK(rendezvous.run_state() == RunStanding::Preempted);
}

TEST_CASE_METHOD(FixedJob, "notice: a spare that comes meanwhile saves the job",
                 "[unit][rendezvous]") {
  CHECK(sent<PreemptionNotice>(notified(3, 60s)).at(1).stops);
  pass(2s, {1, 2, 3});
  CHECK_FALSE(sent<PreemptionNotice>(comes(4, "d", true)).at(1).stops);
  saved(1);
  saved(2);
  CHECK(sent<RestartRound>(saved(3)).size() == 3);
  comes(3, "c");
  comes(1, "a");
  const auto complete = sent<RoundComplete>(ready(comes(2, "b")));
  CHECK(complete.size() == 3);
  CHECK(complete.contains(4));
}

TEST_CASE_METHOD(NoticeTest, "notice: a newcomer waits until the round with a notice has ended",
                 "[unit][rendezvous]") {
  after({}, NodeLeft{{4}});
  for (const std::uint32_t id : {1, 2})
    comes(id, id == 1 ? "a" : "b");
  ready(comes(3, "c"));
  notified(3, 60s);
  CHECK(sent<RestartRound>(comes(5, "e")).empty());  // It would restart others otherwise.
  saved(1);
  saved(2);
  CHECK(sent<RestartRound>(saved(3)).size() == 3);
}

TEST_CASE("notice: --on-notice decides what follows", "[unit][rendezvous]") {
  const auto [policy, stops] =
      GENERATE(std::pair(OnNotice::Auto, false), std::pair(OnNotice::Stop, true),
               std::pair(OnNotice::Shrink, false));
  NoticeTest test({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1, .on_notice = policy}, 3);
  INFO(to_string(policy));
  CHECK(test.sent<PreemptionNotice>(test.notified(1, 60s)).at(2).stops == stops);
  RendezvousActions last;
  for (const std::uint32_t id : {1, 2, 3})
    last = test.saved(id);
  CHECK((NoticeTest::ended(last) != nullptr) == stops);
  CHECK(test.sent<RestartRound>(last).empty() == stops);
}

TEST_CASE("notice: shrink without enough other nodes waits for new ones, but not without any",
          "[unit][rendezvous]") {
  NoticeTest test(
      {.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .on_notice = OnNotice::Shrink}, 2);
  CHECK_FALSE(test.sent<PreemptionNotice>(test.notified(1, 60s)).at(2).stops);
  test.pass(2s, {1, 2});
  CHECK(test.sent<PreemptionNotice>(test.notified(2, 60s)).at(1).stops);
}

TEST_CASE_METHOD(NoticeTest, "notice: notices merge, and the earliest deadline counts",
                 "[unit][rendezvous]") {
  notified(2, 60s, "first");
  // Not at once: a scheduler may warn all nodes of a large job together.
  CHECK(sent<PreemptionNotice>(notified(3, 30s, "second")).empty());
  const auto told = sent<PreemptionNotice>(pass(1s, {1, 2, 3, 4}));
  REQUIRE(told.size() == 4);
  CHECK(told.at(1).left == 29s);
  CHECK(told.at(1).reason == "second");
  CHECK(told.at(1).doomed == 2);
  CHECK(told.at(1).ranks == std::vector<std::pair<int, int>>{{2, 5}});
  CHECK(told.at(3).this_node);
  notified(2, 100s);  // A later deadline of a node is no news.
  CHECK(sent<PreemptionNotice>(pass(2s, {1, 2, 3, 4})).empty());
  CHECK(sent<RestartRound>(pass(26s, {1, 2, 3, 4})).empty());
  CHECK(sent<RestartRound>(pass(1s, {1, 2, 3, 4})).size() == 4);
}

TEST_CASE_METHOD(NoticeTest, "notice: a change that is urgent is told at once",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  CHECK(sent<PreemptionNotice>(notified(3, 1s)).size() == 4);
}

TEST_CASE_METHOD(NoticeTest, "notice: a node on a new connection is told again",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  saved(3);
  NodeResumed resumed;
  resumed.join = joiner(7, "c");
  resumed.join.takes_notices = true;
  resumed.from = {7};
  resumed.join.last_round = 0;
  resumed.join.life = 7;
  resumed.join.generation = rendezvous.generation();
  resumed.group_rank = 2;
  resumed.group_world_size = 4;
  after({}, ConnectionLost{{3}});
  const auto told = sent<PreemptionNotice>(after(100ms, resumed));
  REQUIRE(told.size() == 1);
  CHECK(told.contains(7));
  CHECK(node("c").saved == true);
}

TEST_CASE_METHOD(NoticeTest, "notice: an absent node is waited for, and a lost one is not",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  after({}, ConnectionLost{{3}});
  saved(1);
  saved(2);
  CHECK(sent<RestartRound>(saved(4)).empty());
  const auto restarts = sent<RestartRound>(after(600ms, RendezvousTimePassed{}));
  REQUIRE(restarts.size() == 3);
  CHECK(restarts.at(1).cause == RestartCause::NodeLost);
}

TEST_CASE_METHOD(NoticeTest, "notice: a node that has finished need not answer",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  saved(1);
  saved(2);
  saved(3);
  CHECK(sent<RestartRound>(after({}, NodeFinished{{4}, 0, true, {}})).size() == 3);
}

TEST_CASE_METHOD(NoticeTest, "notice: nodes of an older muster are not told, and cannot answer",
                 "[unit][rendezvous]") {
  NodeJoined older = joiner(3, "c");
  older.last_round = -1;  // The same join again, on the same connection.
  after({}, older);
  const auto told = sent<PreemptionNotice>(notified(2, 60s));
  CHECK(told.size() == 3);
  CHECK_FALSE(told.contains(3));
  for (const std::uint32_t id : {1, 2, 4})
    CHECK(sent<RestartRound>(saved(id)).empty());
  CHECK(sent<RestartRound>(pass(60s, {1, 2, 3, 4})).size() == 4);
}

TEST_CASE_METHOD(NoticeTest, "notice: a doomed node that goes early restarts the others, as always",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  const auto actions = after(1s, NodeLeft{{2}});
  CHECK(sent<RestartRound>(actions).size() == 3);
  CHECK(sent<RestartRound>(actions).at(1).cause == RestartCause::NodeLeft);
  CHECK(sent<RestartRound>(actions).at(1).what == "it left (spot)");
  CHECK_FALSE(rendezvous.view(0, 9, now).notice);
  CHECK(sent<RestartRound>(pass(70s, {1, 3, 4})).empty());
}

TEST_CASE_METHOD(NoticeTest, "notice: all nodes of a large job are warned at once",
                 "[unit][rendezvous]") {
  std::size_t messages = 0;
  for (const std::uint32_t id : {1, 2, 3, 4})
    messages += sent<PreemptionNotice>(notified(id, 60s + id * 1ms)).size();
  CHECK(messages == 4);
  const auto told = sent<PreemptionNotice>(pass(1s, {1, 2, 3, 4}));
  CHECK(told.at(1).doomed == 4);
  CHECK(told.at(1).ranks == std::vector<std::pair<int, int>>{{0, 7}});
  CHECK(told.at(1).stops);
}

TEST_CASE("notice: a message names a bounded number of nodes and ranges", "[unit][rendezvous]") {
  constexpr int kNodes = 100;
  RendezvousTest test({.min_nodes = kNodes, .max_nodes = kNodes});
  RendezvousActions last;
  for (std::uint32_t id = 1; id <= kNodes; ++id) {
    NodeJoined event = test.joiner(id, "h" + std::to_string(id));
    event.takes_notices = true;
    last = test.after({}, event);
  }
  test.ready(last);
  for (std::uint32_t id = 1; id <= kNodes; id += 2)
    test.after({}, NodeNotified{{id}, 60s, "spot", 0});
  std::vector<std::uint32_t> all;
  for (std::uint32_t id = 1; id <= kNodes; ++id)
    all.push_back(id);
  const auto told = test.sent<PreemptionNotice>(test.pass(1s, all));
  REQUIRE(told.size() == kNodes);
  CHECK(told.at(1).doomed == kNodes / 2);
  CHECK(told.at(1).nodes.size() == kMaxNoticeNodes);
  CHECK(told.at(1).ranks.size() == kMaxNoticeRanges);
  CHECK(test.rendezvous.view(0, 9, test.now).notice->silent.size() == kMaxViewedNotice);
  CHECK(test.rendezvous.view(0, 9, test.now).notice->silent_total == kNodes);
}

// --- in other phases -----------------------------------------------------------------------------

TEST_CASE("notice: while nodes gather, a doomed node stays outside", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 2, .max_nodes = 3});
  test.joins(1, "a");
  CHECK(test.sent<RunEnded>(test.after({}, NodeNotified{{1}, 60s, "spot", 0})).empty());
  test.joins(2, "b");
  CHECK(test.rendezvous.participants() == 1);
  CHECK(test.sent<PrepareStore>(test.joins(3, "c")).empty());  // The last call runs.
  const auto complete = test.sent<RoundComplete>(test.ready(test.pass(30s, {1, 2, 3})));
  CHECK(complete.size() == 2);
  CHECK_FALSE(complete.contains(1));
}

TEST_CASE("notice: a doomed node with enough time is taken into a round that needs it",
          "[unit][rendezvous]") {
  const bool has_time = GENERATE(true, false);
  RendezvousTest test({.min_nodes = 2, .max_nodes = 2});
  test.joins(1, "a");
  test.after({}, NodeNotified{{1}, has_time ? 1h : 299s, "maintenance", 0});
  const auto actions = test.joins(2, "b");
  CHECK(test.sent<PrepareStore>(actions).size() == (has_time ? 1U : 0U));
  if (!has_time) return;
  test.ready(actions);
  CHECK(test.rendezvous.view(0, 9, test.now).notice->doomed_total == 1);
}

TEST_CASE("notice: a needed node whose deadline comes while nodes gather moves out",
          "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 3, .max_nodes = 3, .join_timeout = 2h});
  test.joins(1, "a");
  test.joins(2, "b");
  test.after({}, NodeNotified{{1}, 10min, "maintenance", 0});
  CHECK(test.rendezvous.participants() == 2);
  test.pass(10min, {1, 2});
  CHECK(test.rendezvous.participants() == 1);
  CHECK(test.sent<PrepareStore>(test.joins(3, "c")).empty());
  CHECK(test.sent<PrepareStore>(test.joins(4, "d")).size() == 1);
}

TEST_CASE("notice: with --on-notice=stop a notice ends a run that gathers", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 2, .max_nodes = 3, .on_notice = OnNotice::Stop});
  test.joins(1, "a");
  NodeJoined spare = test.join(2, "b");
  spare.spare = true;
  test.after({}, spare);
  CHECK(test.sent<RunEnded>(test.after({}, NodeNotified{{2}, 60s, "spot", 0})).empty());
  const auto ends = test.sent<RunEnded>(test.after({}, NodeNotified{{1}, 60s, "spot", 0}));
  REQUIRE(ends.size() == 2);
  CHECK(ends.at(1).preempted);
}

TEST_CASE_METHOD(NoticeTest, "notice: nodes are told when the round begins", "[unit][rendezvous]") {
  after({}, WorkersFailed{{1}, 0, "rank 0 exited with 1"});
  comes(1, "a");
  comes(2, "b");
  comes(3, "c");
  const auto preparing = comes(4, "d");
  CHECK(sent<PreemptionNotice>(notified(3, 60s)).empty());
  const auto actions = ready(preparing);
  CHECK(sent<RoundComplete>(actions).size() == 4);
  CHECK(sent<PreemptionNotice>(actions).size() == 4);
}

TEST_CASE_METHOD(NoticeTest, "notice: during a restart the node stays outside the next round",
                 "[unit][rendezvous]") {
  after({}, WorkersFailed{{1}, 0, "rank 0 exited with 1"});
  notified(3, 60s);
  comes(1, "a");
  comes(2, "b");
  comes(3, "c");
  const auto complete = sent<RoundComplete>(ready(comes(4, "d")));
  CHECK(complete.size() == 3);
  CHECK_FALSE(complete.contains(3));
}

TEST_CASE_METHOD(NoticeTest, "notice: of a spare, nobody else is told", "[unit][rendezvous]") {
  comes(5, "e", true);
  CHECK(sent<PreemptionNotice>(notified(5, 60s)).empty());
  CHECK(node("e").state == NodeState::KeptOut);
  CHECK(sent<RestartRound>(pass(61s, {1, 2, 3, 4, 5})).empty());
}

TEST_CASE_METHOD(ResumeTest, "notice: a host without a record hears it from the nodes again",
                 "[unit][rendezvous]") {
  const auto back = [&](std::uint32_t id, const std::string& addr, int rank) {
    NodeResumed event = resume(id, addr, rank, kOldLife, 5);
    event.join.takes_notices = true;
    return after({}, event);
  };
  back(1, "a", 0);
  after({}, NodeSaved{{1}, 5});  // It had saved before the host was lost.
  back(2, "b", 1);
  after({}, NodeNotified{{2}, 60s, "spot", 0});
  const auto told = sent<PreemptionNotice>(back(3, "c", 2));
  REQUIRE(told.size() == 3);
  CHECK(told.at(1).ranks == std::vector<std::pair<int, int>>{{2, 3}});
  CHECK(rendezvous.view(0, 9, now).notice->saved == 1);
  after({}, NodeSaved{{2}, 5});
  CHECK(sent<RestartRound>(after({}, NodeSaved{{3}, 5})).size() == 3);
}

// --- an operator ---------------------------------------------------------------------------------

namespace {

struct OperatorNotice : NoticeTest {
  RendezvousActions drains(const std::string& name, Duration left) {
    OperatorAsked asked{OperatorWhat::Drain, name};
    asked.notice = left;
    asked.reason = "kernel update";
    return after({}, asked);
  }
};

}  // namespace

TEST_CASE_METHOD(OperatorNotice, "notice: of an operator, the node is drained, and all are told",
                 "[unit][rendezvous]") {
  CHECK(sent<PreemptionNotice>(drains("b", 90s)).size() == 4);
  CHECK_THAT(rendezvous.operator_answer(),
             Catch::Contains("at the latest 90 s from now, the round restarts without it"));
  CHECK(node("b").kept_out == KeptOutHow::Drained);
  CHECK(node("b").notice->reason == "kernel update");
  CHECK(sent<RestartRound>(pass(90s, {1, 2, 3, 4})).size() == 4);
}

TEST_CASE_METHOD(OperatorNotice, "notice: taken back, the round restarts, for workers have saved",
                 "[unit][rendezvous]") {
  drains("b", 90s);
  saved(1);
  const auto restarts = sent<RestartRound>(after({}, OperatorAsked{OperatorWhat::Allow, "b"}));
  REQUIRE(restarts.size() == 4);
  CHECK(restarts.at(1).cause == RestartCause::Notice);
  CHECK(restarts.at(1).who == operator_name());
  for (const auto& [id, addr] : std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}, {3, "c"}})
    comes(id, addr);
  CHECK(sent<RoundComplete>(ready(comes(4, "d"))).size() == 4);
  CHECK(rendezvous.restarts_used() == 0);
}

TEST_CASE_METHOD(OperatorNotice, "notice: a node that was allowed says the same notice in vain",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  after({}, OperatorAsked{OperatorWhat::Allow, "b"});
  for (const auto& [id, addr] : std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}, {3, "c"}})
    comes(id, addr);
  notified(2, 60s);
  CHECK(sent<RoundComplete>(ready(comes(4, "d"))).size() == 4);
  pass(60s, {1, 2, 3, 4});
  CHECK(sent<PreemptionNotice>(notified(2, 0s)).empty());
  CHECK(sent<PreemptionNotice>(notified(2, 60s)).size() == 4);  // This is another one.
}

TEST_CASE_METHOD(OperatorNotice, "notice: a node that is in no round only stays outside",
                 "[unit][rendezvous]") {
  comes(5, "e", true);
  CHECK(sent<PreemptionNotice>(drains("e", 90s)).empty());
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("stays outside"));
}

// --- the record ----------------------------------------------------------------------------------

TEST_CASE("notice: a host that begins with a record knows the deadline", "[unit][rendezvous]") {
  const RunSettings run{.min_nodes = 2, .max_nodes = 2, .max_restarts = 1};
  RunRecord record{.settings = run,
                   .life = 3,
                   .generation = 4,
                   .highest_generation = 4,
                   .had_round = true,
                   .complete = true,
                   .last_world = 2};
  std::vector<MemberRecord> members;
  for (const std::string addr : {"a", "b"})
    members.push_back({.name = {addr, 1, 0},
                       .rank = addr == "a" ? 0 : 1,
                       .instance = "of " + addr,
                       .local_world_size = 2});
  const std::int64_t wall_ms = 1'700'000'000'000;
  members[1].doom = RecordedDoom{wall_ms + 20'000, "spot", true, false};
  RendezvousSetup setup{.life = 9};
  setup.recorded = true;
  Rendezvous rendezvous(setup);
  Instant now{1h};
  SECTION("before the deadline") {
    rendezvous.restore(record, members, now, {wall_ms * 1'000});
    NodeResumed event;
    event.from = {1};
    event.join = {.from = {1},
                  .name = {"a", 1, 0},
                  .instance = "of a",
                  .run = run,
                  .last_round = 0,
                  .life = 3,
                  .generation = 4,
                  .resumes = true,
                  .takes_notices = true};
    event.group_world_size = 2;
    const auto told = RendezvousTest::sent<PreemptionNotice>(rendezvous.step(event, now));
    REQUIRE(told.size() == 1);
    CHECK(told.at(1).left == 20s);
    CHECK(told.at(1).reason == "spot");
    CHECK_FALSE(rendezvous.outcome());
    rendezvous.step(RendezvousTimePassed{}, now + 3s);
    rendezvous.step(KeptAlive{{1}}, now + 3s);
  }
  SECTION("after the deadline") {
    rendezvous.restore(record, members, now, {(wall_ms + 60'000) * 1'000});
    REQUIRE(rendezvous.outcome());
    CHECK(rendezvous.outcome()->preempted);
  }
}

}  // namespace muster::testing

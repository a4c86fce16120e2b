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
  /// The lines of this kind for the log.
  template <typename T>
  static std::vector<T> logged(const RendezvousActions& actions) {
    std::vector<T> found;
    for (const auto& action : actions)
      if (const auto* line = std::get_if<T>(&action)) found.push_back(*line);
    return found;
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

TEST_CASE_METHOD(NoticeTest, "notice: the log hears once of each deadline", "[unit][rendezvous]") {
  const auto first = logged<NoticeGiven>(notified(2, 60s));
  REQUIRE(first.size() == 1);
  CHECK(first[0].who.addr == "b");
  CHECK(first[0].left == 60s);
  CHECK(first[0].reason == "spot");
  CHECK_FALSE(first[0].by_operator);
  CHECK(logged<NoticeGiven>(notified(2, 60s)).empty());
  CHECK(logged<NoticeGiven>(notified(2, 61s)).empty());
  CHECK(logged<NoticeGiven>(notified(2, 59s)).size() == 1);
}

TEST_CASE_METHOD(NoticeTest, "notice: the log hears once of each answer to the running round",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  CHECK(logged<NodeAnsweredNotice>(saved(1)).size() == 1);
  CHECK(logged<NodeAnsweredNotice>(saved(1)).empty());
  const std::int64_t another_round = rendezvous.round() + 7;
  CHECK(logged<NodeAnsweredNotice>(after({}, NodeSaved{{3}, another_round})).empty());
}

TEST_CASE_METHOD(NoticeTest, "notice: the log hears that a doomed node is gone, and of no other",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  CHECK(logged<NoticeOver>(after({}, NodeLeft{{3}})).empty());
  const auto over = logged<NoticeOver>(after({}, NodeLeft{{2}}));
  REQUIRE(over.size() == 1);
  CHECK(over[0].who.addr == "b");
  CHECK(over[0].why == "it is gone");
}

TEST_CASE_METHOD(NoticeTest, "notice: a long reason is cut", "[unit][rendezvous]") {
  const auto told = sent<PreemptionNotice>(notified(2, 60s, std::string(1'000, 'x')));
  CHECK(told.at(1).reason.size() <= kMaxNoticeReasonBytes);
}

TEST_CASE_METHOD(NoticeTest, "notice: of a connection without a node, nothing follows",
                 "[unit][rendezvous]") {
  CHECK(after({}, NodeNotified{{99}, 60s, "spot", 0}).empty());
  CHECK(after({}, NodeSaved{{99}, rendezvous.round()}).empty());
}

TEST_CASE_METHOD(NoticeTest, "notice: a notice, and an answer, are signs of life",
                 "[unit][rendezvous]") {
  const bool notifies = GENERATE(true, false);
  const Instant deadline = now + 10min;
  for (int second = 0; second < 60; ++second) {
    for (const std::uint32_t id : {1, 3, 4})
      after({}, KeptAlive{{id}});
    CHECK(sent<RestartRound>(notifies ? notified(2, deadline - now) : saved(2)).empty());
    CHECK(sent<RestartRound>(after(1s, RendezvousTimePassed{})).empty());
  }
}

TEST_CASE_METHOD(FixedJob, "notice: after the end of the run nothing follows",
                 "[unit][rendezvous]") {
  notified(3, 60s);
  for (const std::uint32_t id : {1, 2, 3})
    saved(id);
  REQUIRE(rendezvous.run_state() == RunStanding::Preempted);
  CHECK(logged<NoticeGiven>(notified(1, 5s)).empty());
  CHECK(logged<NodeAnsweredNotice>(after({}, NodeSaved{{1}, 99})).empty());
  CHECK(logged<NoticeOver>(after({}, NodeLeft{{3}})).empty());
}

TEST_CASE_METHOD(NoticeTest, "notice: a change with two seconds left is urgent, any other waits",
                 "[unit][rendezvous]") {
  const auto [left, told] = GENERATE(std::pair<Duration, std::size_t>(2s, 4),
                                     std::pair<Duration, std::size_t>(2001ms, 0));
  notified(2, 60s);
  CHECK(sent<PreemptionNotice>(notified(3, left)).size() == told);
}

TEST_CASE("notice: nodes that cannot be in the next round save no job", "[unit][rendezvous]") {
  NoticeTest test({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1}, 3);
  SECTION("an operator has drained one") {
    test.after({}, OperatorAsked{OperatorWhat::Drain, "c"});
  }
  SECTION("one has finished") {
    test.after({}, NodeFinished{{3}, test.rendezvous.round(), true, {}});
  }
  SECTION("one has a notice, too") {
    test.notified(3, 60s);
    test.pass(1s, {1, 2, 3});
  }
  auto told = NoticeTest::sent<PreemptionNotice>(test.notified(2, 2s));
  REQUIRE(told.contains(1));
  CHECK(told.at(1).stops);
}

TEST_CASE_METHOD(FixedJob, "notice: the end of a job names the first node that goes",
                 "[unit][rendezvous]") {
  notified(2, 60s);
  notified(3, 60s);
  saved(1);
  saved(2);
  SECTION("all have answered") {
    CHECK(ended(saved(3))->why ==
          "node b_1_0 and 1 more will go (spot), and the job was stopped for that: all nodes have "
          "saved");
  }
  SECTION("one is late") {
    const auto actions = pass(60s, {1, 2, 3});
    REQUIRE(ended(actions));
    CHECK(ended(actions)->why ==
          "node b_1_0 and 1 more will go (spot), and the job was stopped for that: the deadline is "
          "here, and 1 node has not answered");
  }
}

// --- in other phases -----------------------------------------------------------------------------

TEST_CASE("notice: exactly five minutes are enough for a round", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 2, .max_nodes = 2});
  test.joins(1, "a");
  test.after({}, NodeNotified{{1}, kDoomedRoundLeast, "maintenance", 0});
  CHECK(test.sent<PrepareStore>(test.joins(2, "b")).size() == 1);
}

TEST_CASE("notice: of two doomed nodes, a round that needs one takes that with more time",
          "[unit][rendezvous]") {
  const bool first_has_more = GENERATE(true, false);
  NoticeTest test({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1}, 3);
  test.notified(1, first_has_more ? 20min : 10min);
  test.notified(2, first_has_more ? 10min : 20min);
  test.after({}, WorkersFailed{{3}, test.rendezvous.round(), "rank 4 exited with 1"});
  test.comes(1, "a");
  test.comes(2, "b");
  const auto complete = NoticeTest::sent<RoundComplete>(test.ready(test.comes(3, "c")));
  CHECK(complete.size() == 2);
  CHECK(complete.contains(first_has_more ? 1 : 2));
  CHECK(complete.contains(3));
}

TEST_CASE("notice: a node that was taken in has its place until it goes", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 3, .max_nodes = 3, .join_timeout = 2h});
  test.joins(1, "a");
  test.after({}, NodeNotified{{1}, 10min, "maintenance", 0});
  REQUIRE(test.rendezvous.participants() == 1);
  // An earlier deadline, for which it would not be taken in.
  test.after({}, NodeNotified{{1}, 4min, "maintenance", 0});
  CHECK(test.rendezvous.participants() == 1);
}

TEST_CASE("notice: a node that one round has needed is not needed for the next",
          "[unit][rendezvous]") {
  NoticeTest test({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3}, 2);
  test.notified(1, 10min);
  const auto fails = [&] {
    test.after({}, WorkersFailed{{2}, test.rendezvous.round(), "rank 2 exited with 1"});
  };
  fails();
  test.comes(1, "a");
  REQUIRE(NoticeTest::sent<RoundComplete>(test.ready(test.comes(2, "b"))).contains(1));
  test.comes(3, "c");
  fails();
  test.comes(1, "a");
  const auto complete = NoticeTest::sent<RoundComplete>(test.ready(test.comes(2, "b")));
  CHECK_FALSE(complete.contains(1));
  CHECK(complete.contains(3));
}

TEST_CASE("notice: with --on-notice=stop a spare's notice ends no later round either",
          "[unit][rendezvous]") {
  NoticeTest test({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .on_notice = OnNotice::Stop},
                  2);
  test.comes(3, "c", true);
  test.notified(3, 1h);
  for (int restart = 0; restart < 2; ++restart) {
    test.after({}, WorkersFailed{{2}, test.rendezvous.round(), "rank 2 exited with 1"});
    const auto gathering = test.comes(1, "a");
    CHECK_FALSE(NoticeTest::ended(gathering));
    CHECK(NoticeTest::sent<RoundComplete>(test.ready(test.comes(2, "b"))).size() == 2);
  }
}

TEST_CASE("notice: a doomed node that stays outside is not sent away", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 3, .max_nodes = 3, .join_timeout = 600s});
  test.joins(1, "a");
  test.pass(300s, {1});
  test.joins(2, "b");
  test.after({}, NodeNotified{{1}, 60s, "spot", 0});
  const auto refused = test.sent<JoinRefused>(test.pass(301s, {1, 2}));
  CHECK_FALSE(refused.contains(1));
  CHECK(test.rendezvous.participants() == 1);
}

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
  CHECK(
      ends.at(1).why ==
      "node a_1_0 and 1 more will go (spot), and the job was stopped for that (--on-notice=stop)");
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

TEST_CASE_METHOD(OperatorNotice, "notice: of an operator, the log says so", "[unit][rendezvous]") {
  const auto given = logged<NoticeGiven>(drains("b", 90s));
  REQUIRE(given.size() == 1);
  CHECK(given[0].by_operator);
  CHECK(given[0].reason == "kernel update");
}

TEST_CASE_METHOD(OperatorNotice, "notice: a drain without a notice tells no workers",
                 "[unit][rendezvous]") {
  const auto actions = after({}, OperatorAsked{OperatorWhat::Drain, "b"});
  CHECK(logged<NoticeGiven>(actions).empty());
  CHECK_FALSE(node("b").notice);
}

TEST_CASE_METHOD(OperatorNotice, "notice: one of two is taken back, and the round has the other",
                 "[unit][rendezvous]") {
  drains("b", 90s);
  drains("c", 90s);
  const auto actions = after({}, OperatorAsked{OperatorWhat::Allow, "b"});
  CHECK(sent<RestartRound>(actions).empty());
  const auto over = logged<NoticeOver>(actions);
  REQUIRE(over.size() == 1);
  CHECK(over[0].who.addr == "b");
  CHECK(rendezvous.operator_answer() == "allowed; the next round takes it in as any other node");
  CHECK_FALSE(node("b").notice);
  CHECK(node("c").notice);
}

TEST_CASE_METHOD(OperatorNotice, "notice: taken back before workers were told, nothing restarts",
                 "[unit][rendezvous]") {
  SECTION("while the round is prepared") {
    after({}, WorkersFailed{{1}, rendezvous.round(), "rank 0 exited with 1"});
    for (const auto& [id, addr] :
         std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}, {3, "c"}})
      comes(id, addr);
    const auto preparing = comes(4, "d");
    notified(3, 60s);
    CHECK(sent<RestartRound>(after({}, OperatorAsked{OperatorWhat::Allow, "c"})).empty());
    CHECK(rendezvous.operator_answer() == "allowed; the next round takes it in as any other node");
    const auto actions = ready(preparing);
    CHECK(sent<RoundComplete>(actions).size() == 4);
  }
  SECTION("while nodes gather, and need the doomed one") {
    RendezvousTest test({.min_nodes = 3, .max_nodes = 3});
    test.joins(1, "a");
    test.joins(2, "b");
    test.after({}, NodeNotified{{1}, 10min, "maintenance", 0});
    CHECK(test.sent<RestartRound>(test.after({}, OperatorAsked{OperatorWhat::Allow, "a"})).empty());
    CHECK(test.rendezvous.operator_answer() ==
          "allowed; the next round takes it in as any other node");
    CHECK(test.sent<PrepareStore>(test.joins(3, "c")).size() == 1);
  }
}

TEST_CASE_METHOD(OperatorNotice, "notice: one that was taken back is known by its deadline",
                 "[unit][rendezvous]") {
  const auto [left, is_another] = GENERATE(
      std::pair<Duration, bool>(58s, false), std::pair<Duration, bool>(62s, false),
      std::pair<Duration, bool>(58s - 1ms, true), std::pair<Duration, bool>(62s + 1ms, true));
  notified(2, 60s);
  after({}, OperatorAsked{OperatorWhat::Allow, "b"});
  for (const auto& [id, addr] : std::map<std::uint32_t, std::string>{{1, "a"}, {2, "b"}, {3, "c"}})
    comes(id, addr);
  ready(comes(4, "d"));
  CHECK(logged<NoticeGiven>(notified(2, left)).size() == (is_another ? 1U : 0U));
}

TEST_CASE("notice: an operator hears what will follow, and why", "[unit][rendezvous]") {
  OperatorNotice test;
  const auto answer = [&] {
    test.drains("b", 90s);
    return std::string(test.rendezvous.operator_answer());
  };
  SECTION("the round shrinks") {
    CHECK(answer() ==
          "the nodes of its round are told now: when all have saved, and at the latest 90 s from "
          "now, the round restarts without it (--on-notice=auto). `musterctl allow` takes the "
          "notice back");
  }
  SECTION("nodes of older musters are counted") {
    const int older = GENERATE(1, 2);
    for (int id = 3; id < 3 + older; ++id) {
      NodeJoined join = test.joiner(static_cast<std::uint32_t>(id), id == 3 ? "c" : "d");
      join.last_round = -1;  // The same join again, on the same connection.
      test.after({}, join);
    }
    CHECK_THAT(
        answer(),
        Catch::EndsWith(
            (older == 1 ? "warning: 1 node of the round is" : "warning: 2 nodes of the round are") +
            std::string(" of torchrun or of an older muster, which take no notices: "
                        "the round ends at the deadline")));
  }
}

TEST_CASE("notice: an operator hears that the job stops", "[unit][rendezvous]") {
  const auto [policy, why] = GENERATE(
      std::pair(OnNotice::Auto, std::string(", because too few other nodes are there for another "
                                            "round (--nnodes asks for at least 2)")),
      std::pair(OnNotice::Stop, std::string(" (--on-notice=stop)")));
  NoticeTest test({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .on_notice = policy}, 2);
  OperatorAsked asked{OperatorWhat::Drain, "b"};
  asked.notice = 90s;
  test.after({}, asked);
  CHECK_THAT(std::string(test.rendezvous.operator_answer()),
             Catch::Contains("the job is stopped" + why));
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

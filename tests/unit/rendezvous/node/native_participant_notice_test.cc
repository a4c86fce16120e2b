// A node's half of notices: its own, and those of other nodes of its round.

#include "tests/unit/rendezvous/node/native_participant_fixture.h"

namespace muster::testing {
namespace {

struct NoticeNode : ParticipantTest {
  void connect_to(bool takes_notices) {
    last = feed(Participant::Connected{
        {.lease = 5s, .resumes = true, .outlives_nodes = true, .notices = takes_notices}});
  }
  void in_round(bool takes_notices = true) {
    connect_to(takes_notices);
    last = feed(Participant::JoinAsked{});
    RoundComplete round{
        .round = 4, .group_rank = {1}, .group_world_size = 2, .life = 7, .generation = 40};
    round.workers = WorkerRanks{.base_global_rank = {8}, .world_size = 16};
    round.store = StoreAddress{"store", 29500};
    last = hear(round);
    REQUIRE(has<Participant::BeginRound>(last));
  }
  static PreemptionNotice notice(Duration left = 60s) {
    return {.round = 4,
            .left = left,
            .reason = "spot",
            .nodes = {"b"},
            .doomed = 1,
            .ranks = {{0, 7}},
            .stops = false};
  }
  static std::optional<Participant::TellWorkers> told(const Participant::Actions& actions) {
    for (const auto& action : actions)
      if (const auto* tell = std::get_if<Participant::TellWorkers>(&action)) return *tell;
    return std::nullopt;
  }
  static std::optional<Participant::EndJob> end(const Participant::Actions& actions) {
    for (const auto& action : actions)
      if (const auto* found = std::get_if<Participant::EndJob>(&action)) return *found;
    return std::nullopt;
  }
  /// Answers what is needed to stay connected until `until`.
  Participant::Actions pass(Instant until) {
    Participant::Actions all;
    while (now < until) {
      now = std::min(until, now + 1s);
      for (auto& action : participant->step(Participant::MessageReceived{NativeAlive{}}, now))
        all.push_back(action);
    }
    return all;
  }
  Participant::Actions last;
};

TEST_CASE_METHOD(NoticeNode, "native participant: it tells the host of its notice, also again",
                 "[unit][rendezvous]") {
  CHECK(feed(Participant::NoticeGiven{60s, "spot"}).empty());  // Not connected.
  in_round();
  const auto first = sent<NodeNotified>(feed(Participant::NoticeGiven{30s, "sooner"}));
  REQUIRE(first.size() == 1);
  CHECK(first[0].left == 30s);
  CHECK(first[0].reason == "sooner");
  CHECK(feed(Participant::NoticeGiven{40s, "later"}).empty());
  feed(Participant::ConnectionBroke{"reset"});
  connect_to(true);
  CHECK(sent<NodeResumed>(last).size() == 1);
  REQUIRE(sent<NodeNotified>(last).size() == 1);
  CHECK(sent<NodeNotified>(last)[0].left < 30s);
  hear(Rejoin{{}, 4, 7, "the round has ended"});
  last = feed(Participant::JoinAsked{});
  CHECK(sent<NodeJoined>(last).size() == 1);
  CHECK(sent<NodeNotified>(last).size() == 1);
}

TEST_CASE_METHOD(NoticeNode, "native participant: a notice that came before the join follows it",
                 "[unit][rendezvous]") {
  feed(Participant::NoticeGiven{60s, "spot"});
  connect_to(true);
  last = feed(Participant::JoinAsked{});
  REQUIRE(last.size() == 2);
  CHECK(sent<NodeNotified>(last).size() == 1);
}

TEST_CASE_METHOD(NoticeNode, "native participant: the workers are told what the host says",
                 "[unit][rendezvous]") {
  in_round();
  auto tell = told(hear(notice()));
  REQUIRE(tell);
  CHECK(tell->deadline == now + 60s);
  CHECK(tell->reason == "spot");
  CHECK(tell->ranks == std::vector<std::pair<int, int>>{{0, 7}});
  CHECK_FALSE(tell->this_node);
  CHECK_FALSE(tell->stops);
  CHECK_FALSE(told(hear(notice(60s - 1ms))));  // The same deadline, a little later.
  PreemptionNotice changed = notice();
  changed.stops = true;
  CHECK(told(hear(changed))->stops);
  PreemptionNotice other_round = notice(5s);
  other_round.round = 3;
  CHECK_FALSE(told(hear(other_round)));
}

TEST_CASE_METHOD(NoticeNode, "native participant: a doomed node knows its own ranks",
                 "[unit][rendezvous]") {
  in_round();
  PreemptionNotice message = notice();
  message.this_node = true;
  CHECK(told(hear(message))->ranks == std::vector<std::pair<int, int>>{{0, 7}, {8, 8}});
}

TEST_CASE_METHOD(NoticeNode, "native participant: a doomed node's ranks are named once, in order",
                 "[unit][rendezvous]") {
  using Ranges = std::vector<std::pair<int, int>>;
  const auto [ranks, with_own] =
      GENERATE(std::pair(Ranges{{9, 15}}, Ranges{{8, 8}, {9, 15}}),
               std::pair(Ranges{{8, 8}}, Ranges{{8, 8}}), std::pair(Ranges{{0, 8}}, Ranges{{0, 8}}),
               std::pair(Ranges{{8, 15}}, Ranges{{8, 15}}));
  in_round();
  PreemptionNotice message = notice();
  message.ranks = ranks;
  CHECK(told(hear(message))->ranks == ranks);  // Of another node: nothing is added.
  message.this_node = true;
  CHECK(told(hear(message))->ranks == with_own);
}

TEST_CASE_METHOD(NoticeNode, "native participant: without a connection nothing is sent",
                 "[unit][rendezvous]") {
  const bool takes_notices = GENERATE(true, false);
  in_round(takes_notices);
  feed(Participant::ConnectionBroke{"reset"});
  const auto actions = feed(Participant::NoticeGiven{60s, "spot"});
  CHECK_FALSE(has<Participant::Send>(actions));
  CHECK_FALSE(told(actions));  // It is not known what the next host takes.
}

TEST_CASE_METHOD(NoticeNode, "native participant: a notice of the round that has ended is not told",
                 "[unit][rendezvous]") {
  in_round();
  hear(RestartRound{{}, 4, RestartCause::WorkersFailed, {"b", 1, 0}, "rank 0 exited with 1", 7});
  CHECK_FALSE(told(hear(notice())));
}

TEST_CASE_METHOD(NoticeNode, "native participant: what workers save outside of a round is not said",
                 "[unit][rendezvous]") {
  connect_to(true);
  feed(Participant::JoinAsked{});
  CHECK(feed(Participant::WorkersHaveSaved{}).empty());
}

TEST_CASE_METHOD(NoticeNode, "native participant: an operator's notice is said to the next host",
                 "[unit][rendezvous]") {
  in_round();
  PreemptionNotice message = notice();
  message.this_node = true;
  hear(message);
  feed(Participant::ConnectionBroke{"reset"});
  connect_to(true);
  REQUIRE(sent<NodeNotified>(last).size() == 1);
  CHECK(sent<NodeNotified>(last)[0].reason == "spot");
  // At its deadline the node does not go alone, and it is over when the node is let in again.
  feed(Participant::ConnectionBroke{"reset"});
  now += 70s;
  CHECK_FALSE(end(feed(Participant::TimeHasPassed{})));
  connect_to(true);
  hear(Rejoin{{}, 4, 7, "the round has ended"});
  last = feed(Participant::JoinAsked{});
  RoundComplete round{
      .round = 5, .group_rank = {1}, .group_world_size = 2, .life = 7, .generation = 41};
  round.workers = WorkerRanks{.base_global_rank = {8}, .world_size = 16};
  round.store = StoreAddress{"store", 29500};
  REQUIRE(has<Participant::BeginRound>(hear(round)));
  feed(Participant::ConnectionBroke{"reset"});
  connect_to(true);
  CHECK(sent<NodeNotified>(last).empty());
}

TEST_CASE_METHOD(NoticeNode, "native participant: that all have saved is said once, and again",
                 "[unit][rendezvous]") {
  in_round();
  hear(notice());
  const auto saved = sent<NodeSaved>(feed(Participant::WorkersHaveSaved{}));
  REQUIRE(saved.size() == 1);
  CHECK(saved[0].round == 4);
  CHECK(sent<NodeSaved>(feed(Participant::WorkersHaveSaved{})).empty());
  feed(Participant::ConnectionBroke{"reset"});
  connect_to(true);
  CHECK(sent<NodeSaved>(last).empty());
  CHECK(sent<NodeSaved>(hear(Resumed{{}, 4, 40, 7})).size() == 1);
}

TEST_CASE_METHOD(NoticeNode, "native participant: workers that save while the host is away",
                 "[unit][rendezvous]") {
  in_round();
  hear(notice());
  feed(Participant::ConnectionBroke{"reset"});
  CHECK(sent<NodeSaved>(feed(Participant::WorkersHaveSaved{})).empty());
  connect_to(true);
  CHECK(sent<NodeSaved>(hear(Resumed{{}, 4, 40, 7})).size() == 1);
}

TEST_CASE_METHOD(NoticeNode, "native participant: a notice for a round whose exchange goes on",
                 "[unit][rendezvous]") {
  connect_to(true);
  feed(Participant::JoinAsked{});
  RoundComplete mixed{
      .round = 4, .group_rank = {1}, .group_world_size = 2, .life = 7, .generation = 40};
  REQUIRE(has<Participant::ExchangeThroughStore>(hear(mixed)));
  CHECK_FALSE(told(hear(notice())));
  CHECK(told(feed(Participant::ExchangeDone{4})));
}

TEST_CASE_METHOD(NoticeNode, "native participant: a restart for a notice is planned",
                 "[unit][rendezvous]") {
  in_round();
  const auto actions =
      hear(RestartRound{{}, 4, RestartCause::Notice, {"b", 1, 0}, "it will go (spot)", 7});
  REQUIRE(has<Participant::RestartWorkers>(actions));
  for (const auto& action : actions)
    if (const auto* restart = std::get_if<Participant::RestartWorkers>(&action)) {
      CHECK(restart->is_planned);
      CHECK(restart->for_notice);
      CHECK(restart->why == "node b_1_0: it will go (spot)");
    }
}

TEST_CASE_METHOD(NoticeNode, "native participant: an operator's restart keeps no notice's deadline",
                 "[unit][rendezvous]") {
  in_round();
  const auto actions =
      hear(RestartRound{{}, 4, RestartCause::Notice, operator_name(), "it is taken back", 7});
  REQUIRE(has<Participant::RestartWorkers>(actions));
  for (const auto& action : actions)
    if (const auto* restart = std::get_if<Participant::RestartWorkers>(&action)) {
      CHECK(restart->is_planned);
      CHECK_FALSE(restart->for_notice);
    }
}

TEST_CASE_METHOD(NoticeNode, "native participant: a node's own deadline is not told later",
                 "[unit][rendezvous]") {
  in_round();
  feed(Participant::NoticeGiven{30s, "spot"});
  const Instant deadline = now + 30s;
  now += 2s;  // The host had the node's message after a second, and its answer needs another one.
  PreemptionNotice message = notice(29s);
  message.this_node = true;
  CHECK(told(hear(message))->deadline == deadline);
  // Another node goes earlier.
  message = notice(5s);
  message.this_node = true;
  const auto earlier = told(hear(message));
  CHECK(earlier->deadline == now + 5s);
}

TEST_CASE_METHOD(NoticeNode, "native participant: a run that was stopped for a notice",
                 "[unit][rendezvous]") {
  in_round();
  const auto ends = end(hear(RunEnded{.succeeded = false, .why = "spot", .preempted = true}));
  REQUIRE(ends);
  CHECK(ends->preempted);
  CHECK_FALSE(ends->succeeded);
}

TEST_CASE_METHOD(NoticeNode, "native participant: an older host is not told, the own workers are",
                 "[unit][rendezvous]") {
  in_round(false);
  const auto actions = feed(Participant::NoticeGiven{60s, "spot"});
  CHECK(sent<NodeNotified>(actions).empty());
  const auto tell = told(actions);
  REQUIRE(tell);
  CHECK(tell->ranks == std::vector<std::pair<int, int>>{{8, 8}});
  CHECK(tell->this_node);
  CHECK(tell->stops);
  CHECK(sent<NodeSaved>(feed(Participant::WorkersHaveSaved{})).empty());
  CHECK_FALSE(end(pass(tell->deadline - 1ms)));
  const auto at_deadline = pass(tell->deadline);
  CHECK(sent<NodeLeft>(at_deadline).size() == 1);
  REQUIRE(end(at_deadline));
  CHECK(end(at_deadline)->preempted);
}

TEST_CASE_METHOD(NoticeNode, "native participant: at the deadline the host decides, if it is there",
                 "[unit][rendezvous]") {
  in_round();
  feed(Participant::NoticeGiven{3s, "spot"});
  CHECK_FALSE(end(pass(now + 10s)));
  REQUIRE(participant->next_deadline());
  CHECK(*participant->next_deadline() > now);
  const auto gone = feed(Participant::ConnectionBroke{"reset"});
  REQUIRE(end(gone));
  CHECK(end(gone)->preempted);
}

}  // namespace
}  // namespace muster::testing

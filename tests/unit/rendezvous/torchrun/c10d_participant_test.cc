#include "tests/unit/rendezvous/torchrun/c10d_participant_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE("c10d participant: pauses after lost writes grow", "[unit][rendezvous]") {
  const RendezvousSettings settings;
  CHECK(lost_write_pause(settings, 0, 0) == 10ms);
  CHECK(lost_write_pause(settings, 0, 1) == 20ms);
  CHECK(lost_write_pause(settings, 3, 0.5) == 120ms);
  CHECK(lost_write_pause(settings, 6, 1) == 1s);
  CHECK(lost_write_pause(settings, 1'000'000, 0) == 500ms);
}

TEST_CASE("c10d participant: cas_backoff_max_seconds sets the pauses after lost writes",
          "[unit][rendezvous]") {
  RendezvousSettings settings;
  settings.cas_backoff = 800ms;
  for (const int lost : {0, 1, 20}) {
    CHECK(lost_write_pause(settings, lost, 0) == 0s);
    CHECK(lost_write_pause(settings, lost, 0.25) == 200ms);
    CHECK(lost_write_pause(settings, lost, 1) == 800ms);
  }
  settings.cas_backoff = 1h;
  settings.keep_alive_interval = 7s;
  CHECK(lost_write_pause(settings, 0, 1) == 7s);
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: the minimum starts the last call, once",
                 "[unit][rendezvous]") {
  me.join(now);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.participants.contains(kMe));
  CHECK(!state.deadline);
  CHECK(me.progress() == "1 node of 2 to 3 joined: b_2_0; 1 node missing");
  in(kFirst);
  state.deadline = WallTime{wall_us + 30'000'000};
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(!state.complete);
}

TEST_CASE_METHOD(
    ParticipantTest,
    "c10d participant: the maximum completes the round, with ranks in the order of names",
    "[unit][rendezvous]") {
  in(kLast);
  in(kFirst);
  state.deadline = WallTime{wall_us + 30'000'000};
  me.join(now);
  const C10dStep last = settle();
  REQUIRE(std::holds_alternative<RoundReady>(last));
  const auto& round = std::get<RoundReady>(last);
  CHECK(round.round == 0);
  CHECK(round.rank == 1);
  CHECK(round.nodes == std::vector<NodeName>{kFirst, kMe, kLast});
  CHECK(state.complete);
  CHECK(!state.deadline);
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: the last call ends by the clock of its setter",
                 "[unit][rendezvous]") {
  in_a_round();
  CHECK(state.participants.size() == 2);
  CHECK(*state.participants.find(kFirst) == 0);
  CHECK(*state.participants.find(kMe) == 1);
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: a last call that was set by a clock far ahead ends, too",
                 "[unit][rendezvous]") {
  in(kFirst);
  me.join(now);
  settle();
  state.deadline = WallTime{wall_us + 3'600'000'000};
  CHECK(std::holds_alternative<CheckLater>(settle()));
  for (int i = 0; i < 31; ++i) {
    pass(1s);
    state.last_heartbeats.set(kFirst, wall());
    if (i < 29) CHECK(std::holds_alternative<CheckLater>(settle()));
  }
  CHECK(std::holds_alternative<RoundReady>(settle()));
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: a node on the wait list breaks the round",
                 "[unit][rendezvous]") {
  in_a_round();
  CHECK(std::holds_alternative<CheckLater>(settle()));
  state.wait_list.insert(kLast);
  state.last_heartbeats.set(kLast, wall());
  const C10dStep broken = step();
  REQUIRE(std::holds_alternative<RoundBroken>(broken));
  CHECK(std::get<RoundBroken>(broken).why == "c_3_0 will be in the next round");

  me.join(now);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(!state.participants.contains(kMe));
  CHECK(state.wait_list.contains(kMe));
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: rank 0 keeps its rank when others join",
                 "[unit][rendezvous]") {
  me = C10dParticipant(kMe, settings(2, 2));
  in(kLast);
  me.join(now);
  settle();
  // The ranks of a round that a muster node with the highest name has completed.
  state.participants.set(kLast, 0);
  state.participants.set(kMe, 1);
  settle();
  me.mark_round_seen_by_all();
  me.join(now);
  settle();
  state.participants.erase(kLast);
  state.complete = false;
  state.round = 1;
  in(kLast);
  const C10dStep last = settle();
  REQUIRE(std::holds_alternative<RoundReady>(last));
  CHECK(std::get<RoundReady>(last).nodes == std::vector<NodeName>{kLast, kMe});
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: the last one to leave opens the next round",
                 "[unit][rendezvous]") {
  in_a_round();
  state.participants.erase(kFirst);
  state.wait_list.insert(kFirst);
  me.join(now);
  settle();
  CHECK(state.round == 1);
  CHECK(!state.complete);
  CHECK(state.participants.contains(kMe));
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: a node leaves a round later if few nodes have seen it",
                 "[unit][rendezvous]") {
  in(kLast);
  in(kFirst);
  me.join(now);
  REQUIRE(std::holds_alternative<RoundReady>(settle()));
  me.join(now);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.participants.contains(kMe));
  pass(2s);
  settle();
  CHECK(!state.participants.contains(kMe));
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: it writes one heartbeat in an interval",
                 "[unit][rendezvous]") {
  in_a_round();
  const WallTime before = *state.last_heartbeats.find(kMe);
  pass(4s);
  settle();
  CHECK(*state.last_heartbeats.find(kMe) == before);
  pass(1s);
  settle();
  CHECK(*state.last_heartbeats.find(kMe) == wall());
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: a silent node is removed with the next write",
                 "[unit][rendezvous]") {
  in_a_round();
  settle();
  for (int i = 0; i < 14; ++i) {
    pass(1s);
    settle();
  }
  CHECK(state.participants.contains(kFirst));
  for (int i = 0; i < 6; ++i) {
    pass(1s);
    settle();
  }
  CHECK(!state.participants.contains(kFirst));
  CHECK(!state.last_heartbeats.contains(kFirst));
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: a node with a slow clock is not dead, and is reported",
                 "[unit][rendezvous]") {
  in_a_round();
  for (int i = 0; i < 30; ++i) {
    pass(1s);
    if (i % 5 == 0) state.last_heartbeats.set(kFirst, WallTime{wall_us - 20'000'000});
    settle();
  }
  CHECK(state.participants.contains(kFirst));
  const auto skewed = me.take_skewed();
  REQUIRE(skewed.size() == 1);
  CHECK(skewed[0].first == kFirst);
  CHECK(skewed[0].second == -20'000'000);
  CHECK(me.take_skewed().empty());
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: this node does not look dead to a node with a fast clock",
                 "[unit][rendezvous]") {
  in_a_round();
  for (int i = 0; i < 30; ++i) {
    pass(1s);
    if (i % 5 == 0) state.last_heartbeats.set(kFirst, WallTime{wall_us + 20'000'000});
    settle();
  }
  const std::int64_t by_its_clock = wall_us + 20'000'000;
  CHECK(state.last_heartbeats.find(kMe)->microseconds > by_its_clock - 15'000'000);
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: its first heartbeat looks fresh to a fast clock, too",
                 "[unit][rendezvous]") {
  me = C10dParticipant(kMe, settings(2, 2));
  in(kFirst);
  state.last_heartbeats.set(kFirst, WallTime{wall_us + 20'000'000});
  me.join(now);
  REQUIRE(std::holds_alternative<RoundReady>(settle()));
  CHECK(state.last_heartbeats.find(kMe)->microseconds == wall_us + 20'000'000);
  const auto skewed = me.take_skewed();
  REQUIRE(skewed.size() == 1);
  CHECK(skewed[0].second == 20'000'000);
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: the entry of a dead node completes no round",
                 "[unit][rendezvous]") {
  me = C10dParticipant(kMe, settings(2, 2));
  in(kFirst);
  pass(100s);
  me.join(now);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(!state.participants.contains(kMe));
  pass(15s);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.participants.contains(kMe));
  CHECK(!state.participants.contains(kFirst));
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: a node that others have removed joins again",
                 "[unit][rendezvous]") {
  in_a_round();
  state.participants.erase(kMe);
  state.last_heartbeats.erase(kMe);
  CHECK(std::holds_alternative<RoundBroken>(step()));
  me.join(now);
  settle();
  CHECK(state.wait_list.contains(kMe));
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: an empty state does not break the round",
                 "[unit][rendezvous]") {
  in_a_round();
  state = {};
  CHECK(std::holds_alternative<CheckLater>(step()));
  in(kLast);
  CHECK(std::holds_alternative<RoundBroken>(step()));
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: closed while joining, running and as a spare",
                 "[unit][rendezvous]") {
  in_a_round();
  state.closed = true;
  CHECK(std::holds_alternative<CheckLater>(step()));
  CHECK(me.closed_while_member());
  me.join(now);
  const C10dStep closed = step();
  REQUIRE(std::holds_alternative<RunIsClosed>(closed));
  CHECK(!std::get<RunIsClosed>(closed).as_spare);

  C10dParticipant spare(kLast, settings(2, 2));
  state.closed = false;
  spare.join(now);
  const C10dStep write = spare.step(state, now, wall());
  REQUIRE(std::holds_alternative<WriteState>(write));
  state = std::get<WriteState>(write).state;
  CHECK(state.redundancy_list.contains(kLast));
  CHECK(std::holds_alternative<CheckLater>(spare.step(state, now, wall())));
  state.closed = true;
  const C10dStep spared = spare.step(state, now, wall());
  REQUIRE(std::holds_alternative<RunIsClosed>(spared));
  CHECK(std::get<RunIsClosed>(spared).as_spare);
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: a spare takes a place that becomes free",
                 "[unit][rendezvous]") {
  me = C10dParticipant(kMe, settings(1, 2));
  in(kFirst, 0);
  in(kLast, 1);
  state.complete = true;
  me.join(now);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.redundancy_list.contains(kMe));
  pass(1000s);  // A spare has no time limit.
  state.last_heartbeats.set(kFirst, wall());
  state.last_heartbeats.set(kLast, wall());
  CHECK(std::holds_alternative<CheckLater>(settle()));
  state.participants.erase(kLast);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.wait_list.contains(kMe));
  CHECK(!state.redundancy_list.contains(kMe));
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: a node that waits for a full round becomes a spare",
                 "[unit][rendezvous]") {
  me = C10dParticipant(kMe, settings(2, 2));
  in(kFirst);
  state.deadline = WallTime{wall_us + 30'000'000};
  state.wait_list.insert(kLast);
  state.last_heartbeats.set(kLast, wall());
  me.join(now);
  REQUIRE(std::holds_alternative<RoundReady>(settle()));
  CHECK(state.wait_list.empty());
  CHECK(state.redundancy_list.contains(kLast));
  // A torchrun node would have left that node on the wait list.
  state.redundancy_list = {};
  state.wait_list.insert(kLast);
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.redundancy_list.contains(kLast));
}

TEST_CASE_METHOD(
    ParticipantTest,
    "c10d participant: after the join timeout it removes its entry and tells the reason",
    "[unit][rendezvous]") {
  me.join(now);
  settle();
  pass(601s);
  const C10dStep last = settle();
  REQUIRE(std::holds_alternative<JoinTimedOut>(last));
  CHECK(std::get<JoinTimedOut>(last).reason ==
        "no round was complete within 600 s (--rdzv-conf join_timeout); 0 nodes of 2 to 3 joined; "
        "2 nodes missing");
  CHECK(state.participants.empty());
  CHECK(state.last_heartbeats.empty());
}

TEST_CASE_METHOD(ParticipantTest, "c10d participant: close and leave are written once",
                 "[unit][rendezvous]") {
  in_a_round();
  state.foreign.push_back({"extra", "pickled"});
  SECTION("close") {
    me.close(now);
    CHECK(std::holds_alternative<ParticipantDone>(settle()));
    CHECK(state.closed);
    CHECK(state.participants.size() == 2);
  }
  SECTION("leave") {
    me.leave(now);
    CHECK(std::holds_alternative<ParticipantDone>(settle()));
    CHECK(!state.participants.contains(kMe));
    CHECK(!state.last_heartbeats.contains(kMe));
  }
  CHECK(state.foreign.size() == 1);
}

TEST_CASE_METHOD(ParticipantTest,
                 "c10d participant: the close of an ended run does not close a new one",
                 "[unit][rendezvous]") {
  in_a_round();
  me.close(now);
  state = {};
  // In an empty state the other nodes of this run see that it is closed.
  const bool another_has_begun = GENERATE(false, true);
  if (another_has_begun) in(kLast);
  CHECK(std::holds_alternative<ParticipantDone>(settle()));
  CHECK(state.closed == !another_has_begun);
}

}  // namespace
}  // namespace muster::testing

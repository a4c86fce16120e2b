// Nodes that come late to a round of a torchrun host, and spares.

#include "tests/unit/rendezvous/torchrun/c10d_participant_fixture.h"

namespace muster::testing {
namespace {

struct HoldingBackTest : ParticipantTest {
  /// A round of two nodes runs, with at most three allowed; then this node comes.
  void comes_late(RendezvousSettings mine) {
    me = C10dParticipant(kMe, std::move(mine));
    in(kFirst, 0);
    in(kLast, 1);
    state.complete = true;
    me.join(now);
    CHECK(std::holds_alternative<CheckLater>(settle()));
  }
  void others_live() {
    for (const auto& [node, rank] : state.participants)
      if (node != kMe) state.last_heartbeats.set(node, wall());
  }
  /// The state after a failed worker: all nodes have left, and the first one has come back.
  void others_restart() {
    state.participants = {};
    state.complete = false;
    ++state.round;
    in(kFirst);
  }
  RendezvousSettings policy(ScalePolicy policy) {
    RendezvousSettings made = settings(2, 3);
    made.run.scale_policy = policy;
    return made;
  }
  RendezvousSettings spare() {
    RendezvousSettings made = settings(2, 3);
    made.spare = true;
    return made;
  }
};

TEST_CASE_METHOD(HoldingBackTest,
                 "c10d participant: with scale policy now a newcomer restarts the others",
                 "[unit][rendezvous]") {
  comes_late(policy(ScalePolicy::Now));
  CHECK(state.wait_list.contains(kMe));
}

TEST_CASE_METHOD(
    HoldingBackTest,
    "c10d participant: with scale policy at-restart a newcomer joins at the next restart",
    "[unit][rendezvous]") {
  comes_late(policy(ScalePolicy::AtRestart));
  CHECK(state.wait_list.empty());
  CHECK(state.redundancy_list.contains(kMe));
  pass(1000s);
  others_live();
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK(state.redundancy_list.contains(kMe));
  others_restart();
  settle();
  CHECK(state.participants.contains(kMe));
  CHECK(state.redundancy_list.empty());
}

TEST_CASE_METHOD(
    HoldingBackTest,
    "c10d participant: a spare, or scale policy never, joins only where nodes are missing",
    "[unit][rendezvous]") {
  comes_late(GENERATE(0, 1) == 0 ? spare() : policy(ScalePolicy::Never));
  CHECK(state.wait_list.empty());
  CHECK(state.redundancy_list.contains(kMe));
  others_restart();
  pass(29s);
  others_live();
  CHECK(std::holds_alternative<CheckLater>(settle()));
  CHECK_FALSE(state.participants.contains(kMe));
  SECTION("the others are back") {
    in(kLast);
    settle();
    pass(100s);
    others_live();
    settle();
    CHECK_FALSE(state.participants.contains(kMe));
    CHECK(state.redundancy_list.contains(kMe));
  }
  SECTION("no other node comes") {
    settle();
    pass(10s);
    others_live();
    settle();
    pass(20s);
    others_live();
    settle();
    REQUIRE(state.participants.contains(kMe));
    // From then on it is like any other node: it joins the next round at once.
    pass(31s);
    others_live();
    REQUIRE(std::holds_alternative<RoundReady>(settle()));
    me.mark_round_seen_by_all();
    others_restart();
    me.join(now);
    settle();
    CHECK(state.participants.contains(kMe));
  }
}

TEST_CASE_METHOD(HoldingBackTest,
                 "c10d participant: failed workers restart the others under every scale policy",
                 "[unit][rendezvous]") {
  const auto which = GENERATE(ScalePolicy::AtRestart, ScalePolicy::Never, ScalePolicy::Now);
  me = C10dParticipant(kMe, policy(which));
  in(kFirst);
  me.join(now);
  settle();
  pass(31s);
  others_live();
  REQUIRE(std::holds_alternative<RoundReady>(settle()));
  me.mark_round_seen_by_all();
  me.join(now);  // Its workers have failed.
  SECTION("at once") {
    settle();
    CHECK(state.wait_list.contains(kMe));
    CHECK(state.redundancy_list.empty());
  }
  SECTION("but not if they have begun another round without it") {
    const C10dStep left = step();
    REQUIRE(std::holds_alternative<WriteState>(left));
    others_restart();
    in(kLast, 1);
    state.complete = true;
    settle();
    CHECK(state.wait_list.contains(kMe) == (which == ScalePolicy::Now));
  }
}

TEST_CASE_METHOD(HoldingBackTest, "c10d participant: scale policy never joins a first round",
                 "[unit][rendezvous]") {
  me = C10dParticipant(kMe, policy(ScalePolicy::Never));
  in(kFirst);
  me.join(now);
  settle();
  CHECK(state.participants.contains(kMe));
}

TEST_CASE_METHOD(HoldingBackTest, "c10d participant: a spare ends well when the run does",
                 "[unit][rendezvous]") {
  comes_late(spare());
  state.closed = true;
  const C10dStep closed = step();
  REQUIRE(std::holds_alternative<RunIsClosed>(closed));
  CHECK(std::get<RunIsClosed>(closed).as_spare);
}

}  // namespace
}  // namespace muster::testing

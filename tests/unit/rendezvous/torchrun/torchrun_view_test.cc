#include "rendezvous/torchrun/torchrun_view.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;
using Applies = TorchrunView::Applies;
using Kind = StateOperation::Kind;
using Listed = TorchrunView::Listed;

constexpr std::int64_t kSecondUs = 1'000'000;

struct TorchrunViewTest {
  TorchrunView::Run run_of_two() {
    TorchrunView::Run run;
    run.participants = {{0, &first, false, 1}, {1, &second, true, 0}};
    run.alive = run.participants;
    return run;
  }
  WallTime wall(std::int64_t seconds) const {
    return {1'700'000'000 * kSecondUs + seconds * kSecondUs};
  }
  WallTime shown_heartbeat(const NodeName& node) {
    return *view.shown().last_heartbeats.find(node);
  }

  void set_deadline(std::optional<WallTime> deadline) {
    core.last_call.propose(deadline);
    view.follow(core);
  }
  TorchrunViewTest() {
    core.members.add(first, false);  // Node 0.
    core.members.add(second, true);  // Node 1.
  }

  NodeName first{"a", 1, 0}, second{"b", 2, 0};
  RunCore core{RendezvousSetup{}};
  TorchrunView view{5s};
  Instant now{100s};
};

TEST_CASE_METHOD(TorchrunViewTest, "torchrun view: ranks are shown once the round is complete",
                 "[unit][torchrun_view]") {
  auto run = run_of_two();
  view.rebuild(run, wall(0));
  CHECK(*view.shown().participants.find(first) == 0);
  const auto revision = view.revision();
  run.complete = true;
  view.rebuild(run, wall(0));
  CHECK(*view.shown().participants.find(first) == 1);
  CHECK(view.revision() != revision);
}

TEST_CASE_METHOD(TorchrunViewTest, "torchrun view: heartbeats of muster nodes are renewed together",
                 "[unit][torchrun_view]") {
  view.add(0);
  view.handle_heartbeat(0, wall(-1), now, wall(0));
  REQUIRE(view.renew_if_due(now, wall(0), true));
  CHECK_FALSE(view.renew_if_due(now + 4s, wall(4), true));
  CHECK(view.renew_if_due(now + 5s, wall(5), true));
  view.rebuild(run_of_two(), wall(5));
  CHECK(shown_heartbeat(first) == wall(-1));  // The node's own heartbeat.
  CHECK(shown_heartbeat(second) == wall(5));
  CHECK_FALSE(view.renew_if_due(now + 60s, wall(60), false));  // There is nothing left to renew.
}

TEST_CASE_METHOD(TorchrunViewTest, "torchrun view: all times are shown by the fastest clock",
                 "[unit][torchrun_view]") {
  view.add(0);
  view.add(2);
  CHECK_FALSE(view.handle_heartbeat(0, wall(1), now, wall(0)));
  CHECK_FALSE(view.is_slow(0));
  CHECK(view.handle_heartbeat(2, wall(20), now, wall(0)) == 20 * kSecondUs);
  CHECK_FALSE(view.handle_heartbeat(2, wall(25), now, wall(5)));  // Reported once.
  CHECK(view.is_slow(0));
  auto run = run_of_two();
  run.last_call_left = 30s;
  view.rebuild(run, wall(5));
  CHECK(view.shown().deadline == wall(5 + 30 + 20));
  CHECK(shown_heartbeat(first) == wall(20));  // Renewed when the fast clock was seen.
  // The fast clock's node goes: the slow node looks as if it had just written a heartbeat.
  view.follow(core);  // Node 2 is no member.
  view.handle_heartbeat(0, wall(7), now + 6s, wall(6));
  CHECK_FALSE(view.is_slow(0));
  view.rebuild(run, wall(6));
  CHECK(shown_heartbeat(first) == wall(7));
  CHECK(view.shown().deadline == wall(6 + 30));
}

TEST_CASE_METHOD(
    TorchrunViewTest,
    "torchrun view: the heartbeat of a waiting node is renewed, also when its wait ends",
    "[unit][torchrun_view]") {
  view.add(0);
  view.handle_heartbeat(0, wall(0), now, wall(0));
  view.begin_wait(0);
  REQUIRE(view.renew_if_due(now + 10s, wall(10), false));
  view.rebuild(run_of_two(), wall(10));
  CHECK(shown_heartbeat(first) == wall(10));
  view.end_wait(0, wall(12));
  view.rebuild(run_of_two(), wall(12));
  CHECK(shown_heartbeat(first) == wall(12));
}

TEST_CASE_METHOD(TorchrunViewTest, "torchrun view: a deadline of torchrun nodes is not changed",
                 "[unit][torchrun_view]") {
  view.add(0);
  set_deadline(wall(40));
  view.handle_heartbeat(0, wall(30), now, wall(0));
  view.rebuild(run_of_two(), wall(0));
  CHECK(view.shown().deadline == wall(40));
  view.follow(core);
  view.rebuild(run_of_two(), wall(0));
  CHECK(view.shown().deadline == wall(40));
  core.last_call.clear();
  view.follow(core);
  view.rebuild(run_of_two(), wall(0));
  CHECK_FALSE(view.shown().deadline);
}

TEST_CASE_METHOD(TorchrunViewTest, "torchrun view: a proposal is read as an operation",
                 "[unit][torchrun_view]") {
  using Understood = TorchrunView::Understood;
  StateProposal proposal;
  proposal.proposed.participants.set(first, 0);
  proposal.proposed.last_heartbeats.set(first, wall(0));
  const auto joins = TorchrunView::understand(proposal, std::nullopt);
  REQUIRE(joins.kind == Understood::Kind::Step);
  CHECK(joins.operation.kind == Kind::AddToParticipants);
  CHECK(TorchrunView::understand({.from = {}, .seen = {}, .proposed = {}}, std::nullopt).kind ==
        Understood::Kind::Nothing);
  proposal.proposed = {.round = 17};
  CHECK(TorchrunView::understand(proposal, std::nullopt).kind == Understood::Kind::Unknown);
}

TEST_CASE_METHOD(TorchrunViewTest, "torchrun view: a step applies to the run as it stands now",
                 "[unit][torchrun_view]") {
  StateProposal proposal;
  TorchrunView::Situation now_is{.round = 0, .participants = 1};
  const auto applies = [&](Kind kind, Listed node) {
    now_is.node = node;
    StateOperation operation;
    operation.kind = kind;
    return TorchrunView::applies(operation, proposal, now_is);
  };
  CHECK(applies(Kind::AddToParticipants, Listed::Nowhere) == Applies::IfRoundIsAsSeen);
  CHECK(applies(Kind::AddToParticipants, Listed::Participant) == Applies::No);
  now_is.has_settings = true;
  CHECK(applies(Kind::AddToParticipants, Listed::Nowhere) == Applies::Yes);
  CHECK(applies(Kind::MarkComplete, Listed::Nowhere) == Applies::Yes);
  CHECK(applies(Kind::KeepAlive, Listed::Away) == Applies::No);
  CHECK(applies(Kind::AddToWaitList, Listed::Nowhere) == Applies::No);  // The node could join.
  now_is.complete = true;
  CHECK(applies(Kind::AddToWaitList, Listed::Nowhere) ==
        Applies::No);  // The writer saw another round.
  proposal.seen.participants.set(first, 0);
  CHECK(applies(Kind::AddToWaitList, Listed::Nowhere) == Applies::Yes);
  CHECK(applies(Kind::AddToWaitList, Listed::Elsewhere) == Applies::No);
  CHECK(applies(Kind::AddToParticipants, Listed::Nowhere) == Applies::No);
  CHECK(applies(Kind::MarkClosed, Listed::Nowhere) == Applies::Yes);
}

// Seed 2406 of the shapes simulation: three torchrun nodes met in a round of two.
TEST_CASE_METHOD(
    TorchrunViewTest,
    "torchrun view: a node that begins a round does not join one that others have begun",
    "[unit][torchrun_view]") {
  StateProposal proposal;  // The writer has seen round 0, whose nodes look dead to it.
  proposal.proposed.round = 1;
  proposal.proposed.participants.set(first, 0);
  StateOperation operation;
  operation.kind = Kind::AddToParticipants;
  TorchrunView::Situation now_is{.round = 1, .participants = 0};
  CHECK(TorchrunView::applies(operation, proposal, now_is) == Applies::Yes);
  now_is.participants = 2;
  CHECK(TorchrunView::applies(operation, proposal, now_is) == Applies::No);
  now_is.has_settings = true;  // The host knows the maximum of the run.
  CHECK(TorchrunView::applies(operation, proposal, now_is) == Applies::Yes);
}

TEST_CASE_METHOD(TorchrunViewTest,
                 "torchrun view: a round is compared with the one that the writer saw",
                 "[unit][torchrun_view]") {
  const TorchrunView::Situation situation{.round = 0};
  RendezvousState seen;
  seen.participants.set(first, 0);
  const std::vector<TorchrunView::Node> one{{0, &first, false, 0}};
  const std::vector<TorchrunView::Node> other{{1, &second, false, 0}};
  CHECK(view.is_round_as_seen(seen, situation, one));
  CHECK_FALSE(view.is_round_as_seen(seen, situation, other));
  CHECK_FALSE(view.is_round_as_seen(seen, situation, {}));
  set_deadline(wall(3));
  CHECK_FALSE(view.is_round_as_seen(seen, situation, one));
}

}  // namespace
}  // namespace muster

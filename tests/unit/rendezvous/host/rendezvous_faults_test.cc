// Unexpected events: several losses at one instant, and a broken invariant.

#include <catch2/catch.hpp>

#include "tests/support/torch_model.h"
#include "tests/unit/rendezvous/host/rendezvous_breaker.h"
#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

TEST_CASE("rendezvous: a restart may remove members that were lost at the same instant",
          "[unit][rendezvous]") {
  // Two muster nodes, and a torchrun node that waits in its exit barrier for the others.
  RendezvousTest test({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
  const WallTime wall{1'790'000'000'000'000};
  const auto joined = test.joins(1, "a");
  CHECK(joined.empty());
  test.joins(2, "b");
  TorchModel torch({"t", 7, 0}, {.min_nodes = 2, .max_nodes = 3});
  torch.state = test.rendezvous.render(test.now, wall);
  const RendezvousState seen = torch.state;
  torch.apply(TorchModel::Action::AddToParticipants, wall);
  const auto result = test.rendezvous.propose({{3}, seen, torch.state}, test.now, wall);
  test.ready(result.actions);
  REQUIRE(test.rendezvous.phase() == Rendezvous::Phase::Running);
  test.rendezvous.waits({3}, Rendezvous::Waits::AtExit, test.now, wall);

  // The host was frozen. It first reads the message that the second node had sent meanwhile.
  test.after(60s, KeptAlive{{2}});
  const auto actions = test.after({}, RendezvousTimePassed{});
  CHECK(test.sent<RestartRound>(actions).size() == 1);
  CHECK_FALSE(test.rendezvous.broken());
  CHECK(test.rendezvous.name_of({1}) == nullptr);
  CHECK(test.rendezvous.name_of({3}) == nullptr);
  CHECK(test.rendezvous.round() == 1);
}

TEST_CASE("rendezvous: a pause of the host does not count toward the join timeout",
          "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 2, .max_nodes = 2, .join_timeout = 60s});
  NodeJoined join = test.join(1, "a");
  join.resumes = true;
  test.after({}, join);
  CHECK(test.pass(30s, {1}).empty());
  // The caller reports the pause, or the rendezvous notices it itself, from a late event.
  const bool is_told = GENERATE(true, false);
  if (is_told) test.rendezvous.host_was_frozen(8h, test.now += 8h);
  CHECK(test.after(is_told ? 0s : 8h, KeptAlive{{1}}).empty());
  CHECK(test.pass(25s, {1}).empty());
  CHECK(RendezvousTest::sent<JoinRefused>(test.pass(10s, {1})).size() == 1);
}

TEST_CASE_METHOD(FourNodes, "rendezvous: a run that breaks an invariant ends for everybody",
                 "[unit][rendezvous]") {
  RendezvousBreaker::remove_member(rendezvous, {3});
  const auto ended = sent<RunEnded>(after(1s, KeptAlive{{3}}));
  REQUIRE(ended.size() == 3);
  for (const std::uint32_t id : {1, 2, 4}) {
    CHECK_FALSE(ended.at(id).succeeded);
    CHECK_THAT(ended.at(id).why, Catch::Contains("a member that does not exist"));
  }
  REQUIRE(rendezvous.broken());
  CHECK(rendezvous.members() == 0);
  CHECK(rendezvous.is_reusable());
  CHECK_FALSE(rendezvous.next_deadline());
  // A node that sends another message, or joins late, gets the same answer.
  CHECK(sent<RunEnded>(after(1s, KeptAlive{{1}})).size() == 1);
  CHECK(sent<JoinRefused>(joins(5, "e")).size() == 1);
}

}  // namespace
}  // namespace muster::testing

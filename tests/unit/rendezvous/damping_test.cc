// Nodes that are lost and come back repeatedly.

#include "rendezvous/core/damping.h"

#include "tests/unit/rendezvous/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

TEST_CASE("damping: the wait begins with the third loss, doubles, and is bounded",
          "[unit][rendezvous]") {
  Damping damping;
  Instant now{};
  const auto wait = [&] { return damping.hold_of("a", now).until - now; };
  for (const Duration expected : {0s, 0s, 10s, 20s, 40s, 80s, 160s, 300s, 300s}) {
    damping.lost("a", now += 1min);
    CHECK(wait() == expected);
  }
  CHECK(damping.hold_of("a", now).losses == 9);
  CHECK(damping.hold_of("b", now).losses == 0);
  CHECK(damping.hold_of("a", now + 10min).losses == 0);
}

TEST_CASE("damping: the number of remembered hosts is bounded", "[unit][rendezvous]") {
  Damping damping;
  Instant now{};
  for (std::size_t i = 0; i <= kMaxDampedNodes; ++i)
    damping.lost(std::to_string(i), now += 1ms);
  CHECK(damping.nodes() == kMaxDampedNodes);
  CHECK(damping.hold_of("0", now).losses == 0);
  CHECK(damping.hold_of("1", now).losses == 1);
  damping.lost("", now);
  CHECK(damping.nodes() == kMaxDampedNodes);
  damping.lost("later", now + 10min);
  CHECK(damping.nodes() == 1);
}

struct DampingTest : RendezvousTest {
  DampingTest() : RendezvousTest({.min_nodes = 2, .max_nodes = 3, .last_call_timeout = 1s}) {
    for (const std::uint32_t id : {1, 2, 3})
      after({}, joiner(id, id));
  }
  /// The join of node `id` on the connection with the number `by`.
  NodeJoined joiner(std::uint32_t id, std::uint32_t by) const {
    NodeJoined event = join(by, "node" + std::to_string(id));
    event.instance = "instance " + std::to_string(id);
    return event;
  }
  /// Every node that gets RestartRound joins again, until a round runs.
  RendezvousActions play(RendezvousActions actions) {
    RendezvousActions all;
    while (!actions.empty()) {
      append(all, actions);
      RendezvousActions next;
      for (const auto& action : actions) {
        if (const auto* restart = std::get_if<RestartRound>(&action))
          append(next, after({}, joiner(restart->to.value % 10, restart->to.value)));
        if (const auto* prepare = std::get_if<PrepareStore>(&action))
          append(next, after({}, StoreReady{prepare->to, prepare->round, "store", 29400}));
      }
      actions = std::move(next);
    }
    return all;
  }
  /// Node 3 is lost, and comes back at once on another connection.
  RendezvousActions flap() {
    auto all = play(after({}, ConnectionLost{{connection}}));
    connection += 10;
    append(all, play(after({}, joiner(3, connection))));
    return all;
  }
  static const NodeHeldBack* held(const RendezvousActions& actions) {
    for (const auto& action : actions)
      if (const auto* found = std::get_if<NodeHeldBack>(&action)) return found;
    return nullptr;
  }
  std::uint32_t connection = 3;
};

TEST_CASE_METHOD(DampingTest, "damping: a node that flaps restarts the others less and less often",
                 "[unit][rendezvous]") {
  play(after({}, StoreReady{{1}, 0, "store", 29400}));
  REQUIRE(rendezvous.participants() == 3);
  for (int loss = 1; loss <= 2; ++loss) {
    CHECK(held(flap()) == nullptr);
    REQUIRE(rendezvous.participants() == 3);
  }
  const auto third = flap();
  REQUIRE(held(third) != nullptr);
  CHECK(held(third)->losses == 3);
  CHECK(held(third)->wait == 10s);
  CHECK(rendezvous.participants() == 2);
  CHECK_THAT(rendezvous.reason_for({connection}),
             Catch::Contains("this node was lost 3 times within minutes: it is let in 10 s after"));
  CHECK(pass(9s, {1, 2, connection}).empty());
  const auto back = play(pass(1s, {1, 2, connection}));
  CHECK(sent<RestartRound>(back).size() == 2);
  CHECK(rendezvous.participants() == 3);
  for (int times = 0; times < 2; ++times) {  // The second time it is not in a round: no loss.
    const auto again = flap();
    REQUIRE(held(again) != nullptr);
    CHECK(held(again)->losses == 4);
    CHECK(held(again)->wait == 20s);
  }
}

TEST_CASE_METHOD(DampingTest, "damping: a node without which there are too few joins at once",
                 "[unit][rendezvous]") {
  play(after({}, StoreReady{{1}, 0, "store", 29400}));
  for (int loss = 1; loss <= 3; ++loss)
    flap();
  REQUIRE(rendezvous.participants() == 2);
  play(after({}, NodeLeft{{2}}));
  CHECK(rendezvous.phase() == Rendezvous::Phase::Running);
  CHECK(rendezvous.participants() == 2);
  CHECK(rendezvous.name_of({connection}) != nullptr);
}

TEST_CASE_METHOD(DampingTest, "damping: a node that is held back may leave, or be lost",
                 "[unit][rendezvous]") {
  play(after({}, StoreReady{{1}, 0, "store", 29400}));
  for (int loss = 1; loss <= 3; ++loss)
    flap();
  after({}, NodeLeft{{connection}});
  CHECK(rendezvous.members() == 2);
  CHECK(pass(20s, {1, 2}).empty());
  CHECK_FALSE(rendezvous.broken());
}

}  // namespace
}  // namespace muster::testing

// Nodes that are lost and come back repeatedly.

#include "rendezvous/rounds/damping.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

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

TEST_CASE("damping: agents that die soon after they have come count for their address",
          "[unit][rendezvous]") {
  Damping damping;
  Instant now{};
  for (const Duration expected : {0s, 0s, 0s, 0s, 10s, 20s, 40s}) {
    damping.gone_young("10.0.0.7", now += 30s);
    damping.gone_young("10.0.0.7", now + 900ms);  // Another node of this machine, at the same time.
    CHECK(damping.hold_of_address("10.0.0.7", now).until - now == expected);
  }
  CHECK(damping.hold_of_address("10.0.0.7", now).of_address);
  CHECK(damping.hold_of_address("10.0.0.8", now).losses == 0);
  CHECK(damping.hold_of("10.0.0.7", now).losses == 0);
  CHECK(damping.hold_of_address("10.0.0.7", now + 10min).losses == 0);
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

/// Node 1 is alone in a healthy job of one to three nodes.
struct NewAgents : DampingTest {
  NewAgents() {
    settings.min_nodes = 1;
    rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 7});
    after({}, joiner(1, 1));
    play(pass(1s, {1}));
    REQUIRE(rendezvous.phase() == Rendezvous::Phase::Running);
  }
  enum class End { Killed, Stopped, GaveUp };
  /// A new agent joins from the address of node 3. Returns how often node 1 was restarted.
  std::size_t another(bool in_a_round, End end, Duration life = 2s) {
    connection += 10;
    NodeJoined event = joiner(3, connection);
    event.name.pid = connection;
    event.instance += " of life " + std::to_string(connection);
    std::size_t restarts = 0;
    const auto play_to_end = [&](RendezvousActions actions) {
      const auto all = play_all(std::move(actions));
      restarts += static_cast<std::size_t>(
          std::count_if(all.begin(), all.end(), [](const RendezvousAction& action) {
            const auto* restart = std::get_if<RestartRound>(&action);
            return restart != nullptr && restart->to.value == 1;
          }));
    };
    RendezvousActions open = after(1s, event);
    if (const NodeHeldBack* found = held(open)) {
      ++held_back;
      blames_address = found->of_address;
    }
    if (in_a_round) {
      play_to_end(std::move(open));
      play_to_end(pass(life, {1, connection}));
      open.clear();
    }
    if (end == End::Killed) append(open, after({}, ConnectionLost{{connection}}));
    if (end == End::Stopped) append(open, after({}, NodeLeft{{connection}}));
    if (end == End::GaveUp)
      append(open, after({}, NodeFinished{{connection}, -1, false, "cannot go on"}));
    play_to_end(std::move(open));
    play_to_end(pass(1s, {1}));
    return restarts;
  }
  /// As play(), with agents of several lives.
  RendezvousActions play_all(RendezvousActions actions) {
    RendezvousActions all;
    while (!actions.empty()) {
      append(all, actions);
      RendezvousActions next;
      for (const auto& action : actions) {
        if (const auto* restart = std::get_if<RestartRound>(&action)) {
          NodeJoined again = joiner(restart->to.value % 10, restart->to.value);
          if (restart->to.value != 1) {
            again.name.pid = restart->to.value;
            again.instance += " of life " + std::to_string(restart->to.value);
          }
          append(next, after({}, again));
        }
        if (const auto* prepare = std::get_if<PrepareStore>(&action))
          append(next, after({}, StoreReady{prepare->to, prepare->round, "store", 29400}));
      }
      actions = std::move(next);
    }
    return all;
  }
  std::size_t held_back = 0;
  bool blames_address = false;
};

TEST_CASE_METHOD(NewAgents,
                 "damping: agents that are started again and again restart the others less and "
                 "less often, whatever their end",
                 "[unit][rendezvous]") {
  struct Case {
    bool in_a_round;
    End end;
    Duration life;
  };
  const auto [in_a_round, end, life] = GENERATE(values<Case>({{true, End::Killed, 2s},
                                                              {true, End::Killed, 100s},
                                                              {true, End::Stopped, 2s},
                                                              {true, End::Stopped, 100s},
                                                              {false, End::Killed, 0s},
                                                              {false, End::Stopped, 0s},
                                                              {false, End::GaveUp, 0s}}));
  std::size_t restarts = 0;
  const Instant begin = now;
  for (int agents = 0; agents < 300 && now - begin < 20min; ++agents)
    restarts += another(in_a_round, end, life);
  INFO("restarts " << restarts << ", held back " << held_back);
  CHECK(held_back > 0);
  CHECK(blames_address);
  // Four times without a wait, then after 10, 20, 40, 80, 160, 300, 300 s: at most two for each.
  CHECK(restarts >= 4);
  CHECK(restarts <= 24);
  CHECK_FALSE(rendezvous.outcome());
}

TEST_CASE_METHOD(NewAgents, "damping: agents that disturb nobody are not counted",
                 "[unit][rendezvous]") {
  SECTION("they have worked for long") {
    for (int times = 0; times < 7; ++times)
      another(true, End::Stopped, kShortLife + 1s);
    CHECK(held_back == 0);
  }
  SECTION("nobody is left") {
    for (int times = 0; times < 7; ++times) {
      another(true, End::Stopped);
      after({}, NodeLeft{{1}});
      CHECK(rendezvous.members() == 0);
      play(after({}, joiner(1, 1)));
      play(pass(1s, {1}));
    }
    CHECK(held_back == 0);
  }
  SECTION("they wait for a place") {
    settings.max_nodes = 1;
    rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 7});
    play(after({}, joiner(1, 1)));
    for (int times = 0; times < 7; ++times)
      CHECK(another(false, End::Killed) == 0);
    CHECK(held_back == 0);
  }
}

}  // namespace
}  // namespace muster::testing

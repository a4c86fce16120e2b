// Numbers and names from outside, and actions that a node must not be able to do to a job.

#include <limits>

#include <catch2/catch.hpp>

#include "tests/support/torch_model.h"
#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;
using Action = TorchModel::Action;

TEST_CASE("rendezvous: the longest timeouts do not run out at once", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 1,
                       .max_nodes = 2,
                       .join_timeout = Duration::max(),
                       .last_call_timeout = Duration::max()});
  test.joins(1, "a");
  const auto actions = test.pass(1000s, {1});
  CHECK(actions.empty());
  CHECK(test.rendezvous.members() == 1);
  CHECK(later(Instant(1000h), Duration::max()) == Instant(1000h) + kLongestWait);
  CHECK(later(Instant(1s), Duration::min()) == Instant(1s));
}

TEST_CASE("rendezvous: the number of a round's workers fits an int", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 1, .max_nodes = std::numeric_limits<int>::max()});
  auto event = test.join(1, "a");
  event.local_world_size = kMaxRoundWorkers / static_cast<int>(kMaxMembers) + 1;
  const auto refused = test.sent<JoinRefused>(test.after(0s, event));
  REQUIRE(refused.size() == 1);
  CHECK(refused.at(1).why == JoinRefused::Why::Settings);
  CHECK_THAT(refused.at(1).text, Catch::Contains("1 to 16384 are possible"));
  CHECK_FALSE(refused.at(1).settings_differ);
  --event.local_world_size;
  CHECK(test.sent<JoinRefused>(test.after(0s, event)).empty());
}

TEST_CASE("rendezvous: nodes of one name are told apart without a search", "[unit][rendezvous]") {
  constexpr std::uint32_t kNodes = 3000;
  RendezvousTest test({.min_nodes = 1, .max_nodes = 2});
  for (std::uint32_t id = 1; id <= kNodes; ++id) {
    auto event = test.join(id, "host");
    event.instance = std::to_string(id);
    test.after(0s, event);
  }
  CHECK(test.rendezvous.members() == kNodes);
  CHECK(*test.rendezvous.name_of({kNodes}) == NodeName{"host", 1, kNodes - 1});
}

TEST_CASE("rendezvous: a surplus node neither ends nor restarts the job", "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
  test.joins(1, "a");
  test.ready(test.joins(2, "b"));
  test.joins(3, "c");
  REQUIRE(test.rendezvous.phase() == Rendezvous::Phase::Running);
  const RendezvousEvent event = GENERATE(RendezvousEvent(WorkersFailed{{3}, 0, "x"}),
                                         RendezvousEvent(RestartRequested{{3}, "x"}),
                                         RendezvousEvent(NodeFinished{{3}, 0, false, "x"}),
                                         RendezvousEvent(StoreReady{{3}, 0, "x", 1}));
  const auto actions = test.after(0s, event);
  CHECK(test.sent<RunEnded>(actions).empty());
  CHECK(test.sent<RestartRound>(actions).empty());
  CHECK(test.rendezvous.phase() == Rendezvous::Phase::Running);
  CHECK(test.rendezvous.restarts_used() == 0);
  // A node can only report about its own round.
  CHECK(test.sent<RunEnded>(test.after(0s, NodeFinished{{1}, 7, false, "x"})).empty());
}

/// Three nodes of a run that needs two; rank 0 ("a") must prepare the store.
struct PreparedByA : RendezvousTest {
  PreparedByA() : RendezvousTest({.min_nodes = 2, .max_nodes = 3, .max_restarts = 1}) {
    joins(1, "a");
    joins(2, "b");
    const auto prepare = sent<PrepareStore>(joins(3, "c"));
    REQUIRE(prepare.size() == 1);
    REQUIRE(prepare.contains(1));
  }
  /// "b" and "c" get RestartRound and join again, and one of them must prepare the next round.
  std::map<std::uint32_t, PrepareStore> next(const RendezvousActions& actions) {
    CHECK(sent<RunEnded>(actions).empty());
    CHECK(sent<RestartRound>(actions).size() == 2);
    joins(2, "b");
    return sent<PrepareStore>(joins(3, "c"));
  }
};

TEST_CASE_METHOD(PreparedByA,
                 "rendezvous: another node becomes rank 0 if the first cannot host the store",
                 "[unit][rendezvous]") {
  const auto prepare = next(after(0s, NodeFinished{{1}, 0, false, "the port is in use"}));
  REQUIRE(prepare.size() == 1);
  const std::uint32_t first = prepare.begin()->first;
  CHECK(first != 1);
  CHECK(rendezvous.restarts_used() == 0);
  SECTION("the round begins") {
    CHECK(sent<RoundComplete>(after(0s, StoreReady{{first}, 1, "store", 1})).size() == 2);
  }
  SECTION("with too few nodes left, the run ends") {
    const auto ended =
        sent<RunEnded>(after(0s, NodeFinished{{first}, 1, false, "the port is in use"}));
    REQUIRE(ended.size() == 2);
    CHECK(ended.begin()->second.why == "the port is in use");
  }
}

TEST_CASE_METHOD(PreparedByA, "rendezvous: a rank 0 that lives and does not report the store",
                 "[unit][rendezvous]") {
  CHECK(pass(29s, {1, 2, 3}).empty());
  const auto actions = pass(2s, {1, 2, 3});
  REQUIRE(sent<NotAMember>(actions).contains(1));
  CHECK(sent<NotAMember>(actions).at(1).why == "the workers' store was not ready within 30 s");
  const auto prepare = next(actions);
  REQUIRE(prepare.size() == 1);
  CHECK_FALSE(prepare.contains(1));
}

TEST_CASE("rendezvous: the third rank 0 in a row that cannot host ends the run",
          "[unit][rendezvous]") {
  RendezvousTest test({.min_nodes = 1, .max_nodes = 5, .max_restarts = 1});
  RendezvousActions actions;
  for (std::uint32_t id = 1; id <= 5; ++id)
    RendezvousTest::append(actions, test.joins(id, std::string(1, static_cast<char>('`' + id))));
  for (int tries = 1; tries <= kMaxPrepareTries; ++tries) {
    const auto prepare = test.sent<PrepareStore>(actions);
    REQUIRE(prepare.size() == 1);
    const std::uint32_t first = prepare.begin()->first;
    actions = test.after(0s, NodeFinished{{first}, tries - 1, false, "no port"});
    CHECK(test.sent<RunEnded>(actions).empty() == (tries < kMaxPrepareTries));
    for (const auto& [id, restart] : test.sent<RestartRound>(actions))
      RendezvousTest::append(actions, test.joins(id, std::string(1, static_cast<char>('`' + id))));
  }
}

/// torchrun nodes beside muster nodes.
struct TorchDoor : RendezvousTest {
  explicit TorchDoor(RunSettings run, std::size_t members = kMaxMembers) : RendezvousTest(run) {
    rendezvous = Rendezvous({.run = run, .members = members});
  }
  WallTime wall() const { return {1'790'000'000'000'000 + now.time_since_epoch() / 1us}; }
  TorchModel torch(std::string addr) {
    return TorchModel({std::move(addr), 7, 0},
                      {.min_nodes = settings.min_nodes, .max_nodes = settings.max_nodes});
  }
  ProposalResult does(TorchModel& node, std::uint32_t client, Action action,
                      Duration ahead = Duration::zero()) {
    const RendezvousState seen = rendezvous.render(now, wall());
    node.state = seen;
    node.apply(action, {wall().microseconds + ahead / 1us});
    last_ = {{client}, seen, node.state};
    return rendezvous.propose(last_, now, wall());
  }
  StateProposal last_;
};

TEST_CASE("c10d door: torchrun nodes count toward the limit of members", "[unit][rendezvous]") {
  TorchDoor test({.min_nodes = 5, .max_nodes = 5}, 2);
  for (std::uint32_t id = 1; id <= 3; ++id) {
    auto node = test.torch("t" + std::to_string(id));
    const auto result = test.does(node, id, Action::AddToParticipants);
    CHECK((result.verdict == ProposalVerdict::Refused) == (id == 3));
  }
  CHECK(test.rendezvous.members() == 2);
  CHECK(test.sent<JoinRefused>(test.joins(4, "m")).at(4).why == JoinRefused::Why::TooManyNodes);
}

TEST_CASE("c10d door: a clock in the far future moves nobody else's lease", "[unit][rendezvous]") {
  TorchDoor test({.min_nodes = 5, .max_nodes = 5});
  auto honest = test.torch("honest");
  auto silent = test.torch("silent");
  auto hostile = test.torch("hostile");
  constexpr Duration kFar = 24h * 365 * 250;
  test.does(honest, 1, Action::AddToParticipants);
  test.does(silent, 2, Action::AddToParticipants);
  test.does(hostile, 3, Action::AddToParticipants, kFar);
  for (int second = 0; second < 20; ++second) {
    test.rendezvous.note_request({1}, test.now);
    test.rendezvous.note_request({3}, test.now);
    if (second % 5 == 0) test.does(honest, 1, Action::KeepAlive);
    if (second % 5 == 0) test.does(hostile, 3, Action::KeepAlive, kFar);
    test.after(1s, RendezvousTimePassed{});
  }
  CHECK(test.rendezvous.name_of({1}) != nullptr);
  CHECK(test.rendezvous.name_of({2}) == nullptr);
  CHECK(test.rendezvous.name_of({3}) != nullptr);
}

TEST_CASE("c10d door: a heartbeat that another connection repeats has no effect",
          "[unit][rendezvous]") {
  TorchDoor test({.min_nodes = 2, .max_nodes = 2});
  auto node = test.torch("t");
  test.does(node, 1, Action::AddToParticipants);
  test.now += 5s;
  test.does(node, 1, Action::KeepAlive);
  StateProposal replayed = test.last_;
  replayed.from = {9};
  CHECK(test.rendezvous.propose(replayed, test.now, test.wall()).verdict == ProposalVerdict::Lost);
  test.after(0s, ConnectionLost{{9}});
  CHECK(test.rendezvous.name_of({1}) != nullptr);
  // The replay cannot make the node leave, either.
  replayed.seen = test.rendezvous.render(test.now, test.wall());
  replayed.proposed = replayed.seen;
  replayed.proposed.participants.erase(node.name());
  replayed.proposed.last_heartbeats.erase(node.name());
  CHECK(test.rendezvous.propose(replayed, test.now, test.wall()).verdict == ProposalVerdict::Lost);
  CHECK(test.rendezvous.members() == 1);
}

TEST_CASE("c10d door: a node outside of the round does not close the run", "[unit][rendezvous]") {
  TorchDoor test({.min_nodes = 2, .max_nodes = 2});
  test.joins(1, "m");
  auto in = test.torch("in");
  test.ready(test.does(in, 2, Action::AddToParticipants).actions);
  REQUIRE(test.rendezvous.phase() == Rendezvous::Phase::Running);
  auto surplus = test.torch("surplus");
  test.does(surplus, 3, Action::AddToRedundancyList);
  CHECK(test.rendezvous.ignores_close({3}));
  CHECK(test.rendezvous.ignores_close({4}));  // A connection without a node.
  CHECK_FALSE(test.rendezvous.ignores_close({2}));
}

}  // namespace
}  // namespace muster::testing

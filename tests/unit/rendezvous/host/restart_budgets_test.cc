// --restart-policy in a run of several nodes: the host counts, waits, ends the run and records.

#include "tests/unit/rendezvous/host/rendezvous_resume_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

RunSettings two_nodes(RestartPolicy policy, int failures = 5) {
  return {.min_nodes = 2, .max_nodes = 2, .max_restarts = failures, .restart_policy = policy};
}

struct BudgetsTest : RendezvousTest {
  explicit BudgetsTest(RestartPolicy policy = {.on = true}, int failures = 5)
      : RendezvousTest(two_nodes(policy, failures)) {
    rendezvous = Rendezvous({.run = settings, .life = 7, .recorded = true});
  }

  RendezvousActions join_both() {
    RendezvousActions all;
    for (const std::uint32_t id : {1, 2}) {
      NodeJoined event = joiner(id, id == 1 ? "a" : "b");
      event.last_round = rounds - 1;
      append(all, after({}, event));
    }
    return all;
  }
  /// Lets the wait before the next round pass.
  void wait_for_round(RendezvousActions& joined) {
    for (int i = 0; i < 61 && sent<PrepareStore>(joined).empty(); ++i)
      append(joined, pass(1s, {1, 2}));
  }
  /// The round that both nodes have joined begins.
  std::map<std::uint32_t, RoundComplete> begin(const RendezvousActions& actions) {
    const auto told = sent<RoundComplete>(ready(actions));
    REQUIRE(told.size() == 2);
    ++rounds;
    return told;
  }
  RendezvousActions fails(const std::string& what = "rank 0 exited with 3", bool hung = false) {
    return after({}, WorkersFailed{{1}, rounds - 1, what, hung});
  }
  void gets_to(std::uint32_t id, std::int64_t step) {
    after({}, NodeProgressed{{id}, rounds - 1, step});
  }
  /// One more attempt, whose workers get to `step`, and fail.
  RendezvousActions attempt(std::optional<std::int64_t> step, bool hung = false) {
    RendezvousActions joined = join_both();
    wait_for_round(joined);
    begin(joined);
    if (step) gets_to(2, *step);
    return fails("rank 0 exited with 3", hung);
  }
  static const RunEnded* end_of(const RendezvousActions& actions) {
    for (const auto& action : actions)
      if (const auto* found = std::get_if<RunEnded>(&action)) return found;
    return nullptr;
  }

  std::int64_t rounds = 0;
};

TEST_CASE_METHOD(BudgetsTest, "restarts: the third attempt in a row without progress ends the run",
                 "[unit][rendezvous]") {
  CHECK(sent<RestartRound>(attempt({})).size() == 2);
  CHECK(sent<RestartRound>(attempt({})).size() == 2);
  const auto ended = sent<RunEnded>(attempt({}));
  REQUIRE(ended.size() == 2);
  CHECK(ended.at(2).hopeless);
  CHECK(ended.at(2).without_progress == 3);
  CHECK_THAT(
      ended.at(2).why,
      Catch::Contains("rank 0 exited with 3; the last 3 attempts ended before any progress"));
}

TEST_CASE_METHOD(BudgetsTest,
                 "restarts: steps of any node are progress, also of one that has not failed",
                 "[unit][rendezvous]") {
  for (std::int64_t step = 1; step <= 5; ++step)
    CHECK(sent<RestartRound>(attempt(step)).size() == 2);
  const RunEnded* end = nullptr;
  const RendezvousActions last = attempt(6);
  end = end_of(last);
  REQUIRE(end != nullptr);
  CHECK_FALSE(end->hopeless);
  CHECK(end->why ==
        "rank 0 exited with 3; the budget of failures (--restart-policy failures=5) is used up");
}

TEST_CASE_METHOD(BudgetsTest, "restarts: nodes are told the best step of earlier rounds",
                 "[unit][rendezvous]") {
  attempt(100);
  after({}, NodeProgressed{{2}, rounds - 1, 120});  // How far it was when it stopped.
  RendezvousActions joined = join_both();
  append(joined, pass(2s, {1, 2}));
  CHECK(begin(joined).at(1).best_step == 120);
}

TEST_CASE_METHOD(BudgetsTest, "restarts: the next round waits, longer each time",
                 "[unit][rendezvous]") {
  begin(join_both());
  pass(2min, {1, 2});  // Nothing is known of its progress.
  fails();
  for (const Duration wait : {1s, 2s, 4s}) {
    CHECK(sent<PrepareStore>(join_both()).empty());
    CHECK(std::string(rendezvous.reason()).find("the restart waits") != std::string::npos);
    CHECK(sent<PrepareStore>(pass(wait - 1ms, {1, 2})).empty());
    begin(pass(1ms, {1, 2}));
    pass(2min, {1, 2});
    fails();
  }
}

struct HangBudgetTest : BudgetsTest {
  HangBudgetTest() : BudgetsTest({.on = true, .hangs = 1}, 1) {}
};
TEST_CASE_METHOD(HangBudgetTest,
                 "restarts: a hang costs the budget of hangs, and counts as a restart",
                 "[unit][rendezvous]") {
  attempt(1, true);
  attempt(2, false);
  CHECK(rendezvous.restarts_used() == 2);
  const RendezvousActions last = attempt(3, true);
  REQUIRE(end_of(last) != nullptr);
  CHECK_THAT(end_of(last)->why, Catch::Contains("the budget of hangs (--restart-policy hangs=1)"));
}

struct NodeBudgetTest : BudgetsTest {
  NodeBudgetTest() : BudgetsTest({.on = true, .nodes = 1}) {}
};
TEST_CASE_METHOD(NodeBudgetTest,
                 "restarts: a lost node costs the budget of nodes, no restart of failures",
                 "[unit][rendezvous]") {
  begin(join_both());
  gets_to(1, 1);
  CHECK(sent<RestartRound>(after({}, NodeLeft{{2}})).size() == 1);
  CHECK(rendezvous.restarts_used() == 0);
  RendezvousActions joined = join_both();
  append(joined, pass(2s, {1, 2}));
  begin(joined);
  gets_to(1, 2);
  const RendezvousActions last = after({}, NodeLeft{{2}});
  REQUIRE(end_of(last) != nullptr);
  CHECK(end_of(last)->why == "it left; the budget of nodes (--restart-policy nodes=1) is used up");
}
TEST_CASE_METHOD(NodeBudgetTest,
                 "restarts: a node that leaves a round before its workers run is free",
                 "[unit][rendezvous]") {
  join_both();
  after({}, NodeLeft{{2}});
  join_both();
  const RendezvousActions again = after({}, NodeLeft{{2}});
  CHECK(end_of(again) == nullptr);
}

TEST_CASE_METHOD(BudgetsTest, "restarts: a host that is started again knows what they have cost",
                 "[unit][rendezvous]") {
  attempt({});
  attempt(7);
  attempt(7);
  auto change = rendezvous.take_changes(now);
  REQUIRE(change);
  REQUIRE(change->record.restart_costs);
  CHECK(change->record.restart_costs->failures == 5);
  CHECK(change->record.restart_costs->best_step == 7);
  CHECK(change->record.restart_costs->without_progress == 1);
  rendezvous = Rendezvous({.run = settings, .life = 8, .recorded = true});
  SECTION("and goes on") {
    rendezvous.restore(change->record, change->members, now);
    rendezvous.step(RendezvousTimePassed{}, now);
    const auto again = rendezvous.take_changes(now);
    if (again) CHECK(again->record.restart_costs == change->record.restart_costs);
  }
  SECTION("an older host's restarts were those for failures") {
    change->record.restart_costs.reset();
    change->record.restarts_used = 2;
    rendezvous.restore(change->record, change->members, now);
    rendezvous.step(RendezvousTimePassed{}, now);
    const auto again = rendezvous.take_changes(now);
    REQUIRE(again);
    CHECK(again->record.restart_costs->failures == 2);
  }
}

TEST_CASE("restarts: without the option the sentence is there when restarts are used up",
          "[unit][rendezvous]") {
  BudgetsTest test({}, 2);
  test.attempt(1);
  const auto run_to_end = [&] {
    test.attempt({});
    return test.attempt({});
  };
  const RendezvousActions last = run_to_end();
  const RunEnded* end = BudgetsTest::end_of(last);
  REQUIRE(end != nullptr);
  CHECK_FALSE(end->hopeless);
  CHECK(end->why == "rank 0 exited with 3; all 2 restarts (--max-restarts) are used");
  BudgetsTest other({}, 2);
  other.attempt({});
  other.attempt({});
  const RendezvousActions third = other.attempt({});
  REQUIRE(BudgetsTest::end_of(third) != nullptr);
  CHECK_THAT(BudgetsTest::end_of(third)->why,
             Catch::Contains("are used; the last 3 attempts ended before any progress"));
}

TEST_CASE("restarts: an older node's progress is not heard of, so it ends no run",
          "[unit][rendezvous]") {
  BudgetsTest test({.on = true}, 9);
  test.rendezvous = Rendezvous({.life = 7, .recorded = true});
  const auto joins = [&](std::uint32_t id, const std::string& addr, bool older) {
    NodeJoined event = test.joiner(id, addr);
    event.last_round = test.rounds - 1;
    if (older) event.run.restart_policy.reset();
    return test.after({}, event);
  };
  for (int i = 0; i < 5; ++i) {
    RendezvousActions joined = joins(1, "a", false);
    BudgetsTest::append(joined, joins(2, "b", true));
    test.wait_for_round(joined);
    test.begin(joined);
    CHECK(BudgetsTest::end_of(test.fails()) == nullptr);
  }
}

}  // namespace
}  // namespace muster::testing

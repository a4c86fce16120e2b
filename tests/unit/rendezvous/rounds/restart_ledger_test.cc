// --restart-policy: what is read, what attempts cost, and when a job stops that gets no further.

#include "rendezvous/rounds/restart_ledger.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using Catch::StartsWith;

std::string error_of(std::string_view text) {
  const auto read = parse_restart_policy(text);
  return read ? "" : read.error();
}

TEST_CASE("restart policy: budgets by cause are read, in any order", "[unit][rendezvous]") {
  const auto all = parse_restart_policy("nodes=10,failures=3,hangs=2");
  REQUIRE(all.has_value());
  CHECK(all->failures == 3);
  CHECK(all->policy == RestartPolicy{.on = true, .hangs = 2, .nodes = 10});
  const auto one = parse_restart_policy("failures=0");
  REQUIRE(one.has_value());
  CHECK(one->failures == 0);
  CHECK(one->policy == RestartPolicy{.on = true});
}

TEST_CASE("restart policy: an error says what is wrong and what would be right",
          "[unit][rendezvous]") {
  CHECK(error_of("failure=3") == "has \"failure\": did you mean failures?");
  CHECK(error_of("failures=3,node=1") == "has \"node\": did you mean nodes?");
  CHECK_THAT(error_of("3"), Contains("has \"3\": the budgets are failures, hangs and nodes"));
  CHECK_THAT(error_of("failures"), Contains("failures needs a whole number from 0 to 1000000"));
  CHECK_THAT(error_of("hangs=-1"), Contains("has \"hangs=-1\": hangs needs a whole number"));
  CHECK_THAT(error_of("hangs=1000001"), Contains("hangs needs a whole number"));
  CHECK_THAT(error_of("hangs=2x"), Contains("hangs needs a whole number"));
  CHECK_THAT(error_of("hangs=99999999999999999999"), Contains("hangs needs a whole number"));
  CHECK_THAT(error_of("=3"), Contains("has \"\": the budgets are"));
  CHECK_THAT(error_of(std::string(41, 'x')), StartsWith("has \"" + std::string(40, 'x') + "\": "));
  CHECK_THAT(error_of("nodes="), Contains("nodes needs a whole number"));
  CHECK_THAT(error_of("nodes=1,"), Contains("the budgets are"));
  CHECK(error_of("nodes=1,nodes=1") == "has nodes twice");
  CHECK_THAT(error_of(""), Contains("is empty"));
}

TEST_CASE("restart policy: its text is read back, and holds no failures", "[unit][rendezvous]") {
  for (const RestartPolicy& policy :
       {RestartPolicy{}, RestartPolicy{.on = true}, RestartPolicy{.on = true, .hangs = 0},
        RestartPolicy{.on = true, .hangs = kMaxRestartBudget, .nodes = kMaxRestartBudget}}) {
    CHECK(read_restart_policy(to_string(policy)) == policy);
    CHECK(to_string(policy).size() <= kMaxPolicyBytes);
  }
  CHECK_FALSE(read_restart_policy("failures=3"));
  CHECK_FALSE(read_restart_policy("of"));
}

struct RestartLedgerTest {
  RestartLedger ledger;
  RestartBudgets budgets{.failures = 10, .policy = {.on = true}};
  Instant now{};

  void begin() { ledger.begin_attempt(now); }
  RestartLedger::Decision end(AttemptEnd how = AttemptEnd::Failure, bool all_tell = true) {
    return ledger.end_attempt({.how = how, .now = now, .all_tell = all_tell}, budgets);
  }
  /// An attempt of this length in which the workers get to `step`.
  RestartLedger::Decision attempt(std::optional<std::int64_t> step, Duration length = 2min,
                                  AttemptEnd how = AttemptEnd::Failure) {
    begin();
    if (step) ledger.note_step(*step);
    now += length;
    return end(how);
  }
};

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: an attempt that gets further costs one, any other costs two",
                 "[unit][rendezvous]") {
  CHECK(attempt(100).restarts);
  CHECK(ledger.costs().failures == 1);
  CHECK(attempt(100).restarts);  // It begins at the checkpoint, and gets no further.
  CHECK(ledger.costs().failures == 3);
  CHECK(ledger.costs().without_progress == 1);
  CHECK(attempt(101).restarts);
  CHECK(ledger.costs().failures == 4);
  CHECK(ledger.costs().without_progress == 0);
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: the third attempt in a row without progress ends the job",
                 "[unit][rendezvous]") {
  CHECK(attempt(100).restarts);
  CHECK(attempt(40).restarts);
  CHECK(attempt(60).restarts);  // Further than the last one, but not than the first.
  const auto last = attempt(std::nullopt);
  CHECK_FALSE(last.restarts);
  CHECK(last.hopeless);
  CHECK(ledger.costs().without_progress == 3);
  CHECK(ledger.costs().failures == 5);  // The end itself costs nothing.
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: without --restart-policy nothing ends early, or waits",
                 "[unit][rendezvous]") {
  budgets.policy.on = false;
  for (int i = 0; i < 10; ++i) {
    const auto decision = attempt(std::nullopt, 1s);
    CHECK(decision.restarts);
    CHECK(decision.wait == 0s);
    CHECK(ledger.costs().failures == i + 1);
  }
  const auto last = attempt(std::nullopt, 1s);
  CHECK_FALSE(last.restarts);
  CHECK_FALSE(last.hopeless);
  CHECK(ledger.costs().without_progress == 11);  // For the sentence.
}

TEST_CASE_METHOD(RestartLedgerTest, "restarts: a budget never pays more than it has",
                 "[unit][rendezvous]") {
  budgets.failures = 3;
  CHECK(attempt(std::nullopt, 1s).restarts);
  CHECK(ledger.costs().failures == 2);
  CHECK(attempt(std::nullopt, 1s).restarts);
  CHECK(ledger.costs().failures == 3);
  const auto last = attempt(1);
  CHECK_FALSE(last.restarts);
  CHECK_FALSE(last.hopeless);
}

TEST_CASE_METHOD(RestartLedgerTest, "restarts: hangs and lost nodes have budgets of their own",
                 "[unit][rendezvous]") {
  budgets = {.failures = 1, .policy = {.on = true, .hangs = 1, .nodes = 1}};
  CHECK(attempt(1, 2min, AttemptEnd::Hang).restarts);
  CHECK(ledger.costs().hangs == 1);
  CHECK(ledger.costs().failures == 0);
  CHECK(attempt(2, 2min, AttemptEnd::Node).restarts);
  CHECK(attempt(3).restarts);
  CHECK(ledger.costs().hangs == 1);
  CHECK(ledger.costs().nodes == 1);
  CHECK(ledger.costs().failures == 1);
  SECTION("a failure") {
    CHECK_FALSE(attempt(4).restarts);
  }
  SECTION("a hang") {
    CHECK_FALSE(attempt(4, 2min, AttemptEnd::Hang).restarts);
  }
  SECTION("a node") {
    CHECK_FALSE(attempt(4, 2min, AttemptEnd::Node).restarts);
  }
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: without a budget a hang is a failure, and a lost node costs nothing",
                 "[unit][rendezvous]") {
  budgets.failures = 2;
  CHECK(attempt(1, 2min, AttemptEnd::Hang).restarts);
  CHECK(ledger.costs().failures == 1);
  for (int i = 0; i < 5; ++i)
    CHECK(attempt(std::nullopt, 1s, AttemptEnd::Node).restarts);
  CHECK(ledger.costs().failures == 1);
  CHECK(ledger.costs().without_progress == 0);
}

TEST_CASE_METHOD(RestartLedgerTest, "restarts: waits double, and begin again after progress",
                 "[unit][rendezvous]") {
  budgets.failures = 100;
  for (const Duration wait : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s})
    CHECK(attempt(std::nullopt, 2min).wait == wait);  // Nothing is known of its progress.
  CHECK(attempt(1).wait == 1s);
  CHECK(attempt(1).wait == 2s);
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: a job that tells no progress makes none in an attempt below a minute",
                 "[unit][rendezvous]") {
  SECTION("three short attempts") {
    CHECK(attempt(std::nullopt, kShortAttempt - 1ms).restarts);
    CHECK(attempt(std::nullopt, 1s).restarts);
    CHECK(attempt(std::nullopt, 1s).hopeless);
  }
  SECTION("of a longer one nothing is known") {
    for (int i = 0; i < 4; ++i)
      CHECK(attempt(std::nullopt, kShortAttempt).restarts);
    CHECK(ledger.costs().failures == 4);
  }
  SECTION("with a file something is known") {
    ledger.expect_progress();
    CHECK(attempt(std::nullopt, 1h).restarts);
    CHECK(attempt(std::nullopt, 1h).restarts);
    CHECK(attempt(std::nullopt, 1h).hopeless);
  }
  SECTION("nor with torchrun nodes or older ones") {
    for (int i = 0; i < 4; ++i) {
      begin();
      CHECK(end(AttemptEnd::Failure, false).restarts);
    }
    CHECK(ledger.costs().without_progress == 0);
    CHECK(ledger.costs().failures == 4);
  }
  SECTION("nor of an attempt that an earlier host has seen begin") {
    begin();
    ledger.adopt_attempt();
    CHECK(end().restarts);
    CHECK(ledger.costs().without_progress == 0);
  }
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: two causes that end one attempt count once in the row",
                 "[unit][rendezvous]") {
  budgets.policy.nodes = 10;
  begin();
  CHECK(end(AttemptEnd::Node).restarts);
  CHECK(end(AttemptEnd::Failure).restarts);
  CHECK(ledger.costs().without_progress == 1);
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: progress without a number counts, and so does a late step",
                 "[unit][rendezvous]") {
  begin();
  CHECK(ledger.progressed());
  CHECK_FALSE(ledger.progressed());
  CHECK(end().restarts);
  CHECK(ledger.costs().failures == 1);
  CHECK(attempt(5).restarts);
  CHECK(attempt(5).restarts);
  CHECK(attempt(5).restarts);
  CHECK(ledger.costs().without_progress == 2);
  ledger.note_late_step(5);
  CHECK(ledger.costs().without_progress == 2);
  ledger.note_late_step(6);  // Its node was told of the end before this was on its way.
  CHECK(ledger.costs().without_progress == 0);
  CHECK(attempt(6).restarts);
  CHECK(ledger.costs().without_progress == 1);
}

TEST_CASE_METHOD(RestartLedgerTest,
                 "restarts: a job that has told any progress is expected to tell more",
                 "[unit][rendezvous]") {
  begin();
  SECTION("without a number") {
    ledger.progressed();
  }
  SECTION("too late for its attempt") {
    ledger.note_late_step(5);
  }
  now += 1h;
  CHECK(end().restarts);
  CHECK(ledger.costs().without_progress == (ledger.costs().best_step ? 1 : 0));
  const int before = ledger.costs().without_progress;
  CHECK(attempt(std::nullopt, 1h).restarts);
  CHECK(ledger.costs().without_progress == before + 1);
}

TEST_CASE_METHOD(RestartLedgerTest, "restarts: what was decided elsewhere is charged within bounds",
                 "[unit][rendezvous]") {
  ledger.charge_failures(0, 3);
  CHECK(ledger.costs().failures == 0);
  ledger.charge_failures(2, 3);
  CHECK(ledger.costs().failures == 2);
  ledger.charge_failures(-5, 3);
  CHECK(ledger.costs().failures == 0);
  ledger.charge_failures(5, 3);
  CHECK(ledger.costs().failures == 3);
}

TEST_CASE("restarts: the sentence is there from the third attempt on", "[unit][rendezvous]") {
  CHECK(no_progress_text(2).empty());
  CHECK_THAT(no_progress_text(3), Contains("the last 3 attempts ended before any progress: "));
}

TEST_CASE("restarts: a text says what each budget has paid", "[unit][rendezvous]") {
  const RestartCosts costs{.failures = 1, .hangs = 2, .nodes = 3};
  RestartBudgets budgets{.failures = 4, .policy = {.on = true, .hangs = 5, .nodes = 6}};
  CHECK(budgets_text(costs, budgets) == "failures 1/4, hangs 2/5, nodes 3/6");
  budgets.policy.hangs.reset();
  CHECK(budgets_text(costs, budgets) == "failures 1/4, nodes 3/6");
  budgets.policy.nodes.reset();
  CHECK(budgets_text(costs, budgets) == "failures 1/4");
  CHECK(budgets_text(costs, {.failures = 4}).empty());
}

TEST_CASE("restarts: a text says which budget is used up", "[unit][rendezvous]") {
  const RestartBudgets budgets{.failures = 3, .policy = {.on = true, .hangs = 2, .nodes = 1}};
  CHECK(used_up_text("it", AttemptEnd::Failure, budgets, 3) ==
        "it; the budget of failures (--restart-policy failures=3) is used up");
  CHECK(used_up_text("it", AttemptEnd::Hang, budgets, 3) ==
        "it; the budget of hangs (--restart-policy hangs=2) is used up");
  CHECK(used_up_text("it", AttemptEnd::Node, budgets, 3) ==
        "it; the budget of nodes (--restart-policy nodes=1) is used up");
  CHECK(used_up_text("it", AttemptEnd::Hang, {.failures = 1}, 1) ==
        "it; its 1 restart (--max-restarts) is used");
  CHECK(used_up_text("it", AttemptEnd::Failure, {.failures = 1}, 2) ==
        "it; all 2 restarts (--max-restarts) are used");
  CHECK(used_up_text("it", AttemptEnd::Failure, {}, 0) == "it (--max-restarts=0)");
  const RestartBudgets one{.failures = 3, .policy = {.on = true}};
  CHECK(used_up_text("it", AttemptEnd::Hang, one, 3) ==
        "it; the budget of failures (--restart-policy failures=3) is used up");
}

}  // namespace
}  // namespace muster

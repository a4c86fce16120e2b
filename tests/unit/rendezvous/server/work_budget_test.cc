#include "rendezvous/server/work_budget.h"

#include <catch2/catch.hpp>

using namespace muster;

namespace {

struct BudgetTest {
  WorkBudget budget;

  BudgetTest() { budget.begin_turn(); }
  void serve(std::int64_t work) {
    budget.begin_slice();
    budget.spend(work);
    budget.end_slice();
  }
};

}  // namespace

TEST_CASE_METHOD(BudgetTest, "work budget: a connection that has used its slice must yield",
                 "[unit][limits]") {
  budget.begin_slice();
  CHECK_FALSE(budget.must_yield(kTurnWork));  // A request that has begun may be as large as it is.
  budget.spend(kSliceWork - 1);
  CHECK_FALSE(budget.must_yield(1));
  budget.spend(1);
  CHECK(budget.must_yield(0));
}

TEST_CASE_METHOD(BudgetTest,
                 "work budget: when the turn is used up, only cheap requests are served",
                 "[unit][limits]") {
  serve(kTurnWork - 1);
  CHECK_FALSE(budget.turn_is_used_up());
  serve(1);
  REQUIRE(budget.turn_is_used_up());
  budget.begin_slice();
  CHECK_FALSE(budget.must_yield(kSmallSliceWork));
  CHECK(budget.must_yield(kSmallSliceWork + 1));
  budget.spend(kSmallSliceWork);
  CHECK(budget.must_yield(0));
}

TEST_CASE_METHOD(BudgetTest, "work budget: a turn of many events keeps some work for the rest",
                 "[unit][limits]") {
  serve(3 * kTurnWork);
  budget.keep_some_for_the_rest();
  CHECK(budget.left_in_turn() == 2 * kSliceWork);
  budget.spend_of_turn(kSliceWork);
  CHECK(budget.left_in_turn() == kSliceWork);
  budget.begin_turn();
  budget.keep_some_for_the_rest();
  CHECK(budget.left_in_turn() == kTurnWork);
}

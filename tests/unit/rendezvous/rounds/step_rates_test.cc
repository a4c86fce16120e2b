// How fast a run's workers take their steps, from the reports of its nodes.
#include "rendezvous/rounds/step_rates.h"

#include <limits>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::testing {

namespace {

using namespace std::chrono_literals;

NodeReport report(std::vector<std::int64_t> steps, int starts = 1) {
  NodeReport made{.round = 0, .starts = starts, .workers = static_cast<int>(steps.size())};
  for (std::size_t i = 0; i < steps.size(); ++i)
    made.listed.push_back({.local_rank = static_cast<int>(i),
                           .state = WorkerReport::State::Running,
                           .pid = 100 + static_cast<int>(i),
                           .step = steps[i],
                           .progress_before = 0s});
  return made;
}

// Nodes that report to one host.
struct StepRatesTest {
  StepRates rates;
  Instant now{};

  // The node had `before` ten seconds ago, and has `after` now.
  void reports(const NodeReport& before, const NodeReport& after,
               std::optional<int> first_rank = 0) {
    rates.add(before, now, after, first_rank, now + 10s);
    now += 10s;
  }
  const StepRate& last() const { return rates.series().rates.back(); }
  std::size_t size() const { return rates.series().rates.size(); }
};

}  // namespace

TEST_CASE_METHOD(StepRatesTest, "step rates: the mean of all ranks, and the slowest of them",
                 "[unit][rendezvous]") {
  reports(report({100, 100, 100}), report({120, 110, 130}), 8);
  CHECK(last().mean() == Approx(2.0));
  CHECK(last().slowest == Approx(1.0));
  CHECK(last().slowest_rank == 9);
}

TEST_CASE_METHOD(StepRatesTest, "step rates: the time of a step counts, not that of its report",
                 "[unit][rendezvous]") {
  NodeReport before = report({100});
  before.listed[0].progress_before = 4s;
  NodeReport after = report({107});
  after.listed[0].progress_before = 0s;
  reports(before, after);
  CHECK(last().mean() == Approx(0.5));  // 7 steps in 14 s.
}

TEST_CASE_METHOD(StepRatesTest, "step rates: a rank that stands still is the slowest",
                 "[unit][rendezvous]") {
  NodeReport before = report({50, 50});
  NodeReport after = report({60, 50});
  after.listed[1].progress_before = 10s;
  reports(before, after, std::nullopt);
  CHECK(last().slowest == 0);
  CHECK_FALSE(last().slowest_rank.has_value());
}

TEST_CASE_METHOD(StepRatesTest, "step rates: what cannot be compared is left out",
                 "[unit][rendezvous]") {
  SECTION("another attempt") {
    reports(report({100}), report({10}, 2));
  }
  SECTION("a step back") {
    reports(report({100}), report({90}));
  }
  SECTION("another process") {
    NodeReport after = report({120});
    after.listed[0].pid = 7;
    reports(report({100}), after);
  }
  SECTION("no step yet") {
    NodeReport before = report({0});
    before.listed[0].step.reset();
    reports(before, report({5}));
  }
  SECTION("it has ended") {
    NodeReport after = report({120});
    after.listed[0].state = WorkerReport::State::Succeeded;
    reports(report({100}), after);
  }
  SECTION("no worker of both reports is the same") {
    NodeReport after = report({100, 120});
    after.listed.erase(after.listed.begin());
    reports(report({100}), after);
  }
  CHECK(size() == 0);
}

TEST_CASE_METHOD(StepRatesTest, "step rates: the largest steps do no harm", "[unit][rendezvous]") {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  reports(report({kLeast}), report({kMost}));
  CHECK(last().mean() > 1e17);
}

TEST_CASE_METHOD(StepRatesTest, "step rates: the memory is bounded, and the begin is kept",
                 "[unit][rendezvous]") {
  const Instant begin = now + 10s;
  std::int64_t step = 0;
  double seconds = 0;
  for (int i = 0; i < 20'000; ++i) {  // 55 h.
    reports(report({step}), report({step + 30}));
    step += 30;
    REQUIRE(size() <= kMaxStepRates);
  }
  const StepSeries& series = rates.series();
  CHECK(series.begin == begin);
  CHECK(size() > kMaxStepRates / 3);
  for (std::size_t i = 0; i < size(); ++i) {
    CHECK(series.rates[i].mean() == Approx(3.0));
    seconds += series.rates[i].seconds;
    if (i > 0) CHECK(series.rates[i].index > series.rates[i - 1].index);
  }
  CHECK(seconds == Approx(200'000));  // Nothing is lost when intervals are merged.
  CHECK(series.begin + (last().index + 1) * series.interval > now);
}

TEST_CASE_METHOD(StepRatesTest, "step rates: rare reports are merged, too", "[unit][rendezvous]") {
  for (int i = 0; i < 1'000; ++i) {
    now += 24h;
    reports(report({0}), report({1}));
    REQUIRE(size() <= kMaxStepRates);
  }
  CHECK(size() > kMaxStepRates / 3);
}

TEST_CASE_METHOD(StepRatesTest, "step rates: when intervals merge, the slowest rank stays",
                 "[unit][rendezvous]") {
  reports(report({100}), report({101}), 5);
  for (std::size_t i = 0; i < kMaxStepRates * 2; ++i)
    reports(report({100}), report({130}), 3);
  CHECK(rates.series().rates.front().slowest == Approx(0.1));
  CHECK(rates.series().rates.front().slowest_rank == 5);
  rates.clear();
  CHECK(rates.series().rates.empty());
}

}  // namespace muster::testing

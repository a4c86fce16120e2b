// How fast a run's workers take their steps, over the time of the run: for the page's plot.
//
// Pure. The memory is bounded: when there are too many intervals, two become one, and the later
// ones are twice as long. So the series always reaches back to the begin of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/node_report.h"

namespace muster {

/// Intervals that are kept of one run.
inline constexpr std::size_t kMaxStepRates = 240;
/// Nodes report progress every 7.5 to 12.5 s: each node has at least one report in an interval.
inline constexpr Duration kFirstStepInterval = std::chrono::seconds(15);

/// What the reports of one interval say.
struct StepRate {
  std::int64_t index = 0;  // Of the interval, counted from the first one.
  double steps = 0;        // Of all ranks that have reported,
  double seconds = 0;      // and the time that they took for them. Their quotient is the mean rate.
  double slowest = 0;      // Steps per second of the slowest rank.
  std::optional<int> slowest_rank = {};  // Its global rank; empty: the rank was not known.

  double mean() const { return seconds > 0 ? steps / seconds : 0; }
};

/// A copy of the series.
struct StepSeries {
  Instant begin{};  // Of the interval 0.
  Duration interval = kFirstStepInterval;
  std::vector<StepRate> rates;  // Only intervals with reports, the oldest first.
};

class StepRates {
 public:
  /// Compares a node's report with its report before. `first_rank`: the global rank of its first
  /// worker. Reports of different attempts are not compared. `now` never goes backwards.
  void add(const NodeReport& before, Instant before_at, const NodeReport& report,
           std::optional<int> first_rank, Instant now);
  const StepSeries& series() const { return series_; }
  void clear() { series_ = {}; }

 private:
  StepRate& current(Instant now);
  void merge_pairs();

  StepSeries series_;
};

}  // namespace muster

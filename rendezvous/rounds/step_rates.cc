#include "rendezvous/rounds/step_rates.h"

#include <algorithm>
#include <chrono>

namespace muster {
namespace {

struct Advance {
  double steps = 0;
  double seconds = 0;
};

/// How far a worker has come between two reports. Empty: that cannot be said, because it has told
/// no step, or has gone back to a checkpoint.
std::optional<Advance> advance_of(const WorkerReport& before, Instant before_at,
                                  const WorkerReport& worker, Instant now) {
  if (!before.step || !worker.step || !before.progress_before || !worker.progress_before)
    return std::nullopt;
  if (before.pid != worker.pid || *worker.step < *before.step) return std::nullopt;
  if (worker.state != WorkerReport::State::Running) return std::nullopt;
  // The times of the steps themselves: reports come at any time between two steps.
  const Instant from = before_at - *before.progress_before;
  const Instant to = *worker.step == *before.step ? now : now - *worker.progress_before;
  const double seconds = std::chrono::duration<double>(to - from).count();
  if (seconds <= 0) return std::nullopt;
  return Advance{static_cast<double>(*worker.step) - static_cast<double>(*before.step), seconds};
}

void add_to(StepRate& rate, const Advance& advance, std::optional<int> rank) {
  const double its = advance.steps / advance.seconds;
  if (rate.seconds == 0 || its < rate.slowest) {
    rate.slowest = its;
    rate.slowest_rank = rank;
  }
  rate.steps += advance.steps;
  rate.seconds += advance.seconds;
}

}  // namespace

void StepRates::add(const NodeReport& before, Instant before_at, const NodeReport& report,
                    std::optional<int> first_rank, Instant now) {
  if (before.starts != report.starts) return;
  auto other = before.listed.begin();
  for (const WorkerReport& worker : report.listed) {  // Both lists are sorted by local rank.
    while (other != before.listed.end() && other->local_rank < worker.local_rank)
      ++other;
    if (other == before.listed.end()) return;
    if (other->local_rank != worker.local_rank) continue;
    const auto advance = advance_of(*other, before_at, worker, now);
    if (!advance) continue;
    std::optional<int> rank;
    if (first_rank) rank = *first_rank + worker.local_rank;
    add_to(current(now), *advance, rank);
  }
}

/// The interval of `now`.
StepRate& StepRates::current(Instant now) {
  auto& rates = series_.rates;
  if (rates.empty()) series_.begin = now;
  const auto index_of = [&] { return (now - series_.begin) / series_.interval; };
  if (!rates.empty() && rates.back().index >= index_of()) return rates.back();
  while (rates.size() >= kMaxStepRates)
    merge_pairs();
  if (!rates.empty() && rates.back().index >= index_of()) return rates.back();
  rates.push_back({.index = index_of()});
  return rates.back();
}

/// Makes the intervals twice as long.
void StepRates::merge_pairs() {
  series_.interval *= 2;
  std::vector<StepRate> merged;
  for (StepRate rate : series_.rates) {
    rate.index /= 2;
    if (merged.empty() || merged.back().index != rate.index) {
      merged.push_back(rate);
      continue;
    }
    StepRate& into = merged.back();
    into.steps += rate.steps;
    into.seconds += rate.seconds;
    if (rate.slowest < into.slowest) {
      into.slowest = rate.slowest;
      into.slowest_rank = rate.slowest_rank;
    }
  }
  series_.rates = std::move(merged);
}

}  // namespace muster

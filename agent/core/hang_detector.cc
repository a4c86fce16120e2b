#include "agent/core/hang_detector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr int kSamplesPerTimeout = 10;
constexpr Duration kIntervalMin = 20ms;  // A sample costs about 10 us per process of the machine.
constexpr Duration kIntervalMax = 10s;
constexpr int kIdleCpuPercent = 1;
constexpr Duration kIdleCpuMin = 20ms;  // The kernel counts CPU time in ticks of 10 ms.
constexpr int kMinIdleIntervals = 2;    // Shorter idle times are not reported.

}  // namespace

HangDetector::HangDetector(Duration timeout)
    : timeout_(timeout),
      interval_(std::clamp(timeout / kSamplesPerTimeout, kIntervalMin, kIntervalMax)) {
  MUSTER_CHECK(timeout_ > 0s);
}

std::vector<IdleWorker> HangDetector::observe(const std::vector<WorkerActivity>& samples,
                                              Instant now, bool console_is_full) {
  Duration passed = time_.advance(now, interval_);
  if (console_is_full && std::none_of(samples.begin(), samples.end(),
                                      [this](const auto& sample) { return has_written(sample); }))
    passed = Duration(0);
  const Duration allowance = std::max(timeout_ * kIdleCpuPercent / 100, kIdleCpuMin);
  std::map<LocalRank, Watched> seen;
  std::vector<IdleWorker> idle;
  bool hangs = false;
  for (WorkerActivity sample : samples) {
    const auto before = watched_.find(sample.rank);
    // A process cannot be read if it waits for hanging storage, or if the machine is very busy. A
    // sum without that process would be too low, and the next sum would look like activity.
    if (!sample.complete && before != watched_.end()) sample = before->second.last;
    Watched fresh{.last = sample, .cpu = sample.cpu};
    if (before != watched_.end()) {
      const Watched& old = before->second;
      // Less CPU time than before means that a descendant has ended, which is activity, too.
      const bool works = sample.bytes_written != old.last.bytes_written || sample.cpu < old.cpu ||
                         sample.cpu - old.cpu > allowance;
      const bool waits = sample.stopped || saved_.contains(sample.rank);
      if (!waits && (!works || promised_.contains(sample.rank))) {
        fresh.cpu = old.cpu;
        fresh.idle = old.idle + passed;
      }
    }
    if (fresh.idle >= kMinIdleIntervals * interval_)
      idle.push_back({sample.rank, fresh.idle, promised_.contains(sample.rank)});
    hangs = hangs || fresh.idle >= timeout_;
    seen.emplace(sample.rank, fresh);
  }
  watched_ = std::move(seen);
  if (!hangs) return {};
  std::stable_sort(idle.begin(), idle.end(),
                   [](const IdleWorker& a, const IdleWorker& b) { return a.idle > b.idle; });
  return idle;
}

bool HangDetector::has_written(const WorkerActivity& sample) const {
  const auto before = watched_.find(sample.rank);
  return sample.complete && before != watched_.end() &&
         sample.bytes_written != before->second.last.bytes_written;
}

void HangDetector::progressed(LocalRank rank) {
  promised_.insert(rank);
  const auto found = watched_.find(rank);
  if (found != watched_.end()) found->second.idle = {};
}

void HangDetector::ended_progress(LocalRank rank) {
  progressed(rank);
  promised_.erase(rank);
}

void HangDetector::reset() {
  watched_.clear();
  promised_.clear();
  saved_.clear();
  time_.reset();
}

}  // namespace muster

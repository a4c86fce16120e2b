#include "agent/core/uninterruptible.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/python_text.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr int kChecksPerTimeout = 10;
constexpr Duration kCheckIntervalMin = 100ms;  // torchrun's --monitor-interval.
constexpr Duration kCheckIntervalMax = 10s;
constexpr double kMaxSeconds = 1e9;

}  // namespace

std::optional<Duration> uninterruptible_timeout(std::string_view text) {
  const std::optional<double> seconds = parse_python_float(text);
  if (!seconds || !(*seconds > 0)) return std::nullopt;  // Also refuses NaN.
  const std::chrono::duration<double> timeout(std::min(*seconds, kMaxSeconds));
  return std::max<Duration>(std::chrono::duration_cast<Duration>(timeout), 1ns);
}

UninterruptibleDetector::UninterruptibleDetector(Duration timeout)
    : timeout_(timeout),
      interval_(
          std::clamp<Duration>(timeout / kChecksPerTimeout, kCheckIntervalMin, kCheckIntervalMax)) {
  MUSTER_CHECK(timeout_ > Duration{});
}

std::optional<StuckWorker> UninterruptibleDetector::observe(const std::vector<WorkerState>& states,
                                                            Instant now) {
  const Duration passed = time_.advance(now, interval_);
  std::map<LocalRank, Duration> stuck;
  std::optional<StuckWorker> longest;
  for (const WorkerState& worker : states) {
    if (worker.state != 'D') continue;
    const auto before = stuck_.find(worker.rank);
    const Duration so_far = before == stuck_.end() ? Duration{} : before->second + passed;
    stuck.emplace(worker.rank, so_far);
    if (so_far >= timeout_ && (!longest || so_far > longest->stuck))
      longest = StuckWorker{worker.rank, so_far};
  }
  stuck_ = std::move(stuck);
  return longest;
}

void UninterruptibleDetector::reset() {
  stuck_.clear();
  time_.reset();
}

}  // namespace muster

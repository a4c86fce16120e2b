#include "agent/core/leftovers.h"

#include <algorithm>

#include "base/seconds_text.h"

namespace muster {

void LeftoverWait::shorten(LeftoverTimes times) {
  times_.until_sigterm = std::min(times_.until_sigterm, times.until_sigterm);
  times_.until_sigkill = std::min(times_.until_sigkill, times.until_sigkill);
  next_at_ = std::min(next_at_, passed_ + std::max(times_.until_sigkill, kDaemonTime));
}

std::optional<LeftoverStage> LeftoverWait::advance(Instant now) {
  passed_ = wait_.advance(now);
  if (stage_ == LeftoverStage::Kill || passed_ < next_at()) return std::nullopt;
  if (!stage_ && passed_ < times_.until_sigterm) return stage_ = LeftoverStage::Wait;
  if (!stage_ || stage_ == LeftoverStage::Wait) {
    next_at_ = passed_ + times_.until_sigkill;
    return stage_ = LeftoverStage::Terminate;
  }
  if (stage_ == LeftoverStage::TerminateDaemons || !has_daemons_)
    return stage_ = LeftoverStage::Kill;
  next_at_ = passed_ + times_.until_sigkill;
  return stage_ = LeftoverStage::TerminateDaemons;
}

void LeftoverWait::terminate(bool members, bool daemons) {
  has_daemons_ = daemons;
  if (!daemons) return;
  // The daemons have had no client in the time that is over if there are no members.
  const Duration had = members ? Duration{} : times_.until_sigterm;
  const bool has_time = times_.until_sigterm > Duration{};
  next_at_ = passed_ + (has_time ? std::max(kDaemonTime - had, Duration{}) : Duration{});
}

/// When the next stage begins.
Duration LeftoverWait::next_at() const {
  if (!stage_) return std::min(kQuietTime, times_.until_sigterm);
  return stage_ == LeftoverStage::Wait ? times_.until_sigterm : next_at_;
}

Duration LeftoverWait::until_next_check() const {
  return std::clamp(next_at() - passed_, Duration{}, WatchedWait::kInterval);
}

std::string leftover_text(LeftoverStage stage, const std::vector<Leftover>& named, int count,
                          Duration until_sigterm) {
  std::string names;
  for (const Leftover& process : named)
    names +=
        (names.empty() ? "" : ", ") + std::to_string(process.pid) + " (" + process.command + ")";
  if (const int others = count - static_cast<int>(named.size()); others > 0)
    names += " and " + std::to_string(others) + " more";
  const std::string processes =
      count == 1 ? "a process that runs on: " : std::to_string(count) + " processes that run on: ";
  switch (stage) {
    case LeftoverStage::Wait:
      return "the workers have ended and left " + processes + names + "; muster waits " +
             seconds_text(until_sigterm) + " for the end" +
             (until_sigterm > kCleanUp.until_sigterm ? " (--leftover-timeout)" : "") +
             ", then it sends SIGTERM";
    case LeftoverStage::Terminate:
    case LeftoverStage::TerminateDaemons:
      return "killing what the workers have left: SIGTERM to " + names;
    case LeftoverStage::Kill:
      return "killing what the workers have left: SIGKILL to " + names;
  }
  return {};
}

}  // namespace muster

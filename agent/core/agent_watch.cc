#include "agent/core/agent_watch.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPingInterval = 5s;
constexpr Duration kPingIntervalAfterSignal = 250ms;
constexpr int kThirdSignal = 3;

}  // namespace

Duration AgentWatch::interval(int signals) const {
  return signals == 0 ? kPingInterval : kPingIntervalAfterSignal;
}

bool AgentWatch::is_lost(const Observation& observation) {
  const Duration passed = time_.advance(observation.now, interval(observation.signals));
  if (observation.answered) silent_ = silent_after_signal_ = {};
  if (!observation.answered && !observation.is_stopped) silent_ += passed;
  if (!observation.answered && observation.signals > 0) silent_after_signal_ += passed;
  if (observation.signals >= kThirdSignal && !observation.is_killing) after_third_signal_ += passed;
  return silent_ >= kSilenceLimit || silent_after_signal_ >= kSilenceAfterSignalLimit ||
         after_third_signal_ >= kThirdSignalLimit;
}

}  // namespace muster

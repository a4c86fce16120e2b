#include "agent/core/agent_watch.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr Duration kCalmInterval = 5s;
constexpr Duration kAskedInterval = 250ms;
constexpr int kImpatientSignals = 3;

}  // namespace

Duration AgentWatch::interval(int signals) const {
  return signals == 0 ? kCalmInterval : kAskedInterval;
}

bool AgentWatch::is_lost(const Look& look) {
  const Duration passed = time_.look(look.now, interval(look.signals));
  if (look.answered) silent_ = asked_ = {};
  if (!look.answered && !look.is_stopped) silent_ += passed;
  if (!look.answered && look.signals > 0) asked_ += passed;
  if (look.signals >= kImpatientSignals && !look.is_killing) impatient_ += passed;
  return silent_ >= kCalmLimit || asked_ >= kAskedLimit || impatient_ >= kImpatientLimit;
}

}  // namespace muster

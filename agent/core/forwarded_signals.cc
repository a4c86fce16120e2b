#include "agent/core/forwarded_signals.h"

#include <algorithm>

namespace muster {

void ForwardedSignals::arrived(int number, At at, Instant now) {
  Waiting& signal = waiting_.try_emplace(number, Waiting{.due = now + kWindow}).first->second;
  (at == At::Front ? signal.at_front : signal.at_shim) = true;
}

std::vector<ForwardedSignals::Due> ForwardedSignals::due(Instant now) {
  std::vector<Due> over;
  std::erase_if(waiting_, [&](const auto& entry) {
    const auto& [number, signal] = entry;
    if (now < signal.due) return false;
    over.push_back({number, signal.at_front && signal.at_shim});
    return true;
  });
  return over;
}

std::optional<Instant> ForwardedSignals::next_due() const {
  std::optional<Instant> next;
  for (const auto& [number, signal] : waiting_)
    next = next ? std::min(*next, signal.due) : signal.due;
  return next;
}

}  // namespace muster

#include "rendezvous/core/damping.h"

#include <algorithm>

namespace muster {

void Damping::lost(const std::string& instance, Instant now) {
  if (instance.empty()) return;
  std::erase_if(losses_,
                [&](const auto& entry) { return now - entry.second.last >= kLossesForgotten; });
  if (losses_.size() >= kMaxDampedNodes && !losses_.contains(instance))
    losses_.erase(std::min_element(
        losses_.begin(), losses_.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  Losses& losses = losses_[instance];
  ++losses.count;
  losses.last = now;
}

Damping::Hold Damping::hold_of(const std::string& instance, Instant now) const {
  const auto found = losses_.find(instance);
  if (found == losses_.end() || now - found->second.last >= kLossesForgotten) return {};
  Hold hold{.losses = found->second.count, .until = found->second.last};
  if (hold.losses <= kFreeLosses) return hold;
  hold.wait = kFirstHold;
  for (int doubled = kFreeLosses + 1; doubled < hold.losses && hold.wait < kLongestHold; ++doubled)
    hold.wait *= 2;
  hold.wait = std::min(hold.wait, kLongestHold);
  hold.until += hold.wait;
  return hold;
}

}  // namespace muster

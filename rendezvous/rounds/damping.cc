#include "rendezvous/rounds/damping.h"

#include <algorithm>

namespace muster {

void Damping::count(LossesOf& losses, const std::string& of, Instant now, Duration one_loss) {
  std::erase_if(losses,
                [&](const auto& entry) { return now - entry.second.last >= kLossesForgotten; });
  if (losses.size() >= kMaxDampedNodes && !losses.contains(of))
    losses.erase(std::min_element(losses.begin(), losses.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  const auto [at, is_new] = losses.try_emplace(of);
  if (!is_new && now - at->second.last < one_loss) return;
  ++at->second.count;
  at->second.last = now;
}

Damping::Hold Damping::hold(const LossesOf& losses, const std::string& of, Instant now, int free) {
  const auto found = losses.find(of);
  if (found == losses.end() || now - found->second.last >= kLossesForgotten) return {};
  Hold hold{.losses = found->second.count, .until = found->second.last};
  if (hold.losses <= free) return hold;
  hold.wait = kFirstHold;
  for (int doubled = free + 1; doubled < hold.losses && hold.wait < kLongestHold; ++doubled)
    hold.wait *= 2;
  hold.wait = std::min(hold.wait, kLongestHold);
  hold.until += hold.wait;
  return hold;
}

void Damping::lost(const std::string& instance, Instant now) {
  if (!instance.empty()) count(losses_, instance, now, Duration::zero());
}

Damping::Hold Damping::hold_of(const std::string& instance, Instant now) const {
  return hold(losses_, instance, now, kFreeLosses);
}

void Damping::gone_young(const std::string& address, Instant now) {
  if (!address.empty()) count(at_address_, address, now, kOneLoss);
}

Damping::Hold Damping::hold_of_address(const std::string& address, Instant now) const {
  Hold of = hold(at_address_, address, now, kFreeYoungLosses);
  of.of_address = true;
  return of;
}

Damping::Hold Damping::hold_of_node(const std::string& instance, const std::string& address,
                                    Instant now) const {
  const Hold own = hold_of(instance, now);
  const Hold at_address = hold_of_address(address, now);
  return own.until >= at_address.until ? own : at_address;
}

}  // namespace muster

#include "rendezvous/rounds/liveness.h"

namespace muster {

void Liveness::seen(Id id, Instant now, Duration lease) {
  lease = std::clamp(lease, Duration::zero(), kLongestWait);
  const auto [found, is_new] = watched_.try_emplace(id, Watch{now, lease});
  if (!is_new) {
    by_end_.erase({found->second.last + found->second.lease, id});
    found->second = {now, lease};
  }
  by_end_.insert({now + lease, id});
}

void Liveness::remove(Id id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  by_end_.erase({found->second.last + found->second.lease, id});
  watched_.erase(found);
}

Liveness::Standing Liveness::standing(Id id, Instant now) const {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return Standing::Unknown;
  const auto& [last, lease] = found->second;
  if (now >= last + lease) return Standing::Lost;
  return now >= last + lease / 2 ? Standing::Late : Standing::OnTime;
}

std::optional<Instant> Liveness::last_seen(Id id) const {
  const auto found = watched_.find(id);
  return found == watched_.end() ? std::nullopt : std::optional(found->second.last);
}

std::optional<Instant> Liveness::oldest() const {
  std::optional<Instant> oldest;
  for (const auto& [id, watch] : watched_)
    if (!oldest || watch.last < *oldest) oldest = watch.last;
  return oldest;
}

std::optional<Instant> Liveness::next_deadline() const {
  if (by_end_.empty()) return std::nullopt;
  return by_end_.begin()->first;
}

std::vector<Liveness::Id> Liveness::take_lost(Instant now) {
  std::vector<Id> lost;
  while (!by_end_.empty() && by_end_.begin()->first <= now) {
    lost.push_back(by_end_.begin()->second);
    remove(lost.back());
  }
  return lost;
}

}  // namespace muster

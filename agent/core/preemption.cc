#include "agent/core/preemption.h"

#include <utility>

namespace muster {

void Preemption::notify(Instant deadline, std::set<LocalRank> promised) {
  deadline_ = deadline;
  promised_ = std::move(promised);
}

void Preemption::reset() {
  deadline_.reset();
  promised_.clear();
}

std::vector<LocalRank> Preemption::signalled_at_once(int local_world_size) const {
  std::vector<LocalRank> ranks;
  for (LocalRank rank{0}; rank.value < local_world_size; ++rank.value)
    if (!ends_itself(rank)) ranks.push_back(rank);
  return ranks;
}

std::optional<Instant> Preemption::next_deadline() const {
  return promised_.empty() ? std::nullopt : deadline_;
}

std::set<LocalRank> Preemption::overdue(Instant now) {
  if (!deadline_ || now < *deadline_) return {};
  return std::exchange(promised_, {});
}

}  // namespace muster

#include "rendezvous/rounds/recovery.h"

#include <algorithm>

#include "rendezvous/rounds/rendezvous_setup.h"

namespace muster {
namespace {

// A node must not hold up a run by a lease that nobody has.
constexpr Duration kMaxReportedLease = std::chrono::hours(1);
// How long nodes of a round may go on coming back one after the other.
constexpr Duration kMaxRecovery = std::chrono::minutes(2);
constexpr std::size_t kRanksShown = 8;

}  // namespace

Recovery::Recovery(const NodeResumed& first, Duration own_lease, Instant now)
    : round_(first.join.last_round),
      generation_(first.join.generation),
      world_(first.group_world_size),
      begun_(now),
      lease_(own_lease) {
  extend(own_lease, now);
}

// Does not compare lives: a host that died while nodes resumed has sent its own life to some of
// them.
bool Recovery::is_of(const NodeResumed& event) const {
  return event.join.last_round == round_ && event.join.generation == generation_ &&
         event.group_world_size == world_;
}

// Nodes come back one after the other if this host needs time for each of them (TLS). So the time
// for the others begins anew with each one, up to a limit.
void Recovery::extend(Duration lease, Instant now) {
  lease_ = std::max(lease_, std::min(lease, kMaxReportedLease));
  deadline_ = std::min(now + lease_ + kReturnSlack, begun_ + lease_ + kMaxRecovery);
}

bool Recovery::is_taken(int rank, std::optional<MemberId> same) const {
  const auto holder = nodes_.find(rank);
  return holder != nodes_.end() && same != holder->second.id;
}

void Recovery::add(MemberId id, const NodeName& name, const NodeResumed& event) {
  remove(id);  // The node may have reported another rank before.
  nodes_[event.group_rank] = {id, event.workers};
  restart_count_ = std::max(restart_count_, event.restart_count);
  if (event.group_rank == 0) store_ = event.store;
  // A node that was cut off, and has stopped its workers for that, reports no failure.
  if (!event.failure.empty() && !failure_) failure_ = {name, event.failure, event.hung};
  progressed_ = progressed_ || event.progressed;
  if (event.step) step_ = std::max(step_.value_or(*event.step), *event.step);
}

void Recovery::remove(MemberId id) {
  std::erase_if(nodes_, [&](const auto& entry) { return entry.second.id == id; });
}

std::string Recovery::missing_ranks() const {
  std::string missing;
  std::size_t count = 0;
  for (int rank = 0; rank < world_; ++rank) {
    if (nodes_.contains(rank)) continue;
    if (++count <= kRanksShown) missing += " " + std::to_string(rank);
  }
  return count > kRanksShown ? missing + " and more" : missing;
}

}  // namespace muster

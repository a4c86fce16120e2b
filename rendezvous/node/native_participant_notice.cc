// NativeParticipant: this node will go, and the notices of the round.

#include <algorithm>
#include <utility>

#include "rendezvous/node/native_participant.h"

namespace muster {
void NativeParticipant::on(const NoticeGiven& event) {
  if (!notices_.give(later(now_, event.left), event.reason)) return;
  send_own_notice();
  if (phase_ == Phase::Running) tell_own_workers();
}

void NativeParticipant::on(const WorkersHaveSaved&) {
  if (phase_ != Phase::Running || !notices_.note_saved()) return;
  if (attached() && link_.welcome().notices) send(NodeSaved{{}, round_.round});
}

/// After each join and resume, too: the host may have been started again without a record.
void NativeParticipant::send_own_notice() {
  const auto& own = notices_.own();
  if (!link_.is_up() || !link_.welcome().notices || !own) return;
  const Duration left = std::max(Duration::zero(), own->deadline - now_);
  send(NodeNotified{{}, left, own->reason, 0});
}

std::optional<std::pair<int, int>> NativeParticipant::own_ranks() const {
  if (!round_.workers) return std::nullopt;
  const int first = round_.workers->base_global_rank.value;
  return std::pair(first, first + options_.node.local_world_size - 1);
}

/// The host is an older muster and tells nobody. So at least this node's own workers are told.
void NativeParticipant::tell_own_workers() {
  const auto& notice = notices_.own();
  if (!notice || !link_.is_up() || link_.welcome().notices) return;
  TellWorkers told{.deadline = notice->deadline,
                   .reason = notice->reason,
                   .ranks = {},
                   .this_node = true,
                   .stops = true};
  if (const auto own = own_ranks()) told.ranks = {*own};
  tell_workers(std::move(told));
}

void NativeParticipant::handle(const PreemptionNotice& message) {
  TellWorkers told{.deadline = later(now_, message.left),
                   .reason = message.reason,
                   .ranks = message.ranks,
                   .this_node = message.this_node,
                   .stops = message.stops};
  notices_.learn(told);
  if (phase_ == Phase::Joining && exchanging(message.round))
    notices_.keep_for(message.round, std::move(told));
  else if (phase_ == Phase::Running && message.round == round_.round)
    tell_workers(std::move(told));
}

void NativeParticipant::tell_workers(TellWorkers told) {
  // The host leaves out ranges if there are very many. A node's own must not be missing.
  const auto own = told.this_node ? own_ranks() : std::nullopt;
  const bool has_own =
      own && std::any_of(told.ranks.begin(), told.ranks.end(), [&](const auto& range) {
        return range.first <= own->first && own->second <= range.second;
      });
  if (own && !has_own) {
    told.ranks.push_back(*own);
    std::sort(told.ranks.begin(), told.ranks.end());
  }
  if (notices_.tell(told)) actions_.push_back(std::move(told));
}

/// Whether this node's deadline is here, and no host decides what follows: it is away, or an older
/// muster.
bool NativeParticipant::goes_alone() const {
  return phase_ == Phase::Running && notices_.goes_at(now_) &&
         !(attached() && link_.welcome().notices);
}

}  // namespace muster

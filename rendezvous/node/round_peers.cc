#include "rendezvous/node/round_peers.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace muster {
namespace {

constexpr Duration kLeastInterval = std::chrono::milliseconds(100);
constexpr Duration kMaxInterval = std::chrono::milliseconds(500);

}  // namespace

void RoundPeers::begin_round() {
  asked_.clear();
  reached_.reset();
}

void RoundPeers::answered(Instant whole_at) {
  reached_ = reached_ ? std::max(*reached_, whole_at) : whole_at;
}

void RoundPeers::forgive(Instant now) {
  if (reached_) reached_ = now;
  for (auto& [rank, at] : asked_)
    at = now;
}

std::optional<Instant> RoundPeers::whole_at(const RoundComplete& round, bool may_grow,
                                            Duration lease, Instant now) const {
  const int world = round.group_world_size;
  std::optional<Instant> at;
  if (world == 1) {
    // A job with one node has no other node to ask. In an elastic job, nodes outside of this round
    // may begin another one.
    if (!may_grow) at = now;
  } else if (round.group_rank.value != 0) {
    at = reached_;
  } else if (asked_.size() == static_cast<std::size_t>(world) - 1) {
    at = std::min_element(asked_.begin(), asked_.end(), [](const auto& a, const auto& b) {
           return a.second < b.second;
         })->second;
  }
  return at && now - *at < lease ? at : std::nullopt;
}

bool RoundPeers::take_question(Duration lease, Instant now) {
  if (now < next_question_) return false;
  next_question_ = now + std::clamp(lease / 10, kLeastInterval, kMaxInterval);
  return true;
}

}  // namespace muster

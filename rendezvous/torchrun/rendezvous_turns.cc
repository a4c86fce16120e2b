#include "rendezvous/torchrun/rendezvous_turns.h"

#include <algorithm>
#include <utility>

namespace muster {

bool CompareSetTurns::may_try(ConnectionId client) const {
  return holder_ ? *holder_ == client : queue_.empty();
}

void CompareSetTurns::tried(ConnectionId client, bool won, Instant now) {
  if (holder_ == client) holder_.reset();
  if (!won) return hold(client, now);
  if (!holder_) next_turn(now);
}

void CompareSetTurns::hold(ConnectionId client, Instant now) {
  give_up(client, now);  // A client waits for one reply, not for two.
  queue_.push_back({client, now});
  queued_.insert(client.value);
  if (queue_.size() > limits_.held) {
    released_.push_back(queue_.front().client);
    pop_front();
  }
  if (!holder_) next_turn(now);
}

void CompareSetTurns::answered(ConnectionId client, Instant now) {
  if (holder_ == client) next_turn(now);
}

void CompareSetTurns::give_up(ConnectionId client, Instant now) {
  if (queued_.erase(client.value) > 0)
    std::erase_if(queue_, [&](const Held& held) { return held.client == client; });
  std::erase(released_, client);
  if (holder_ == client) next_turn(now);
}

void CompareSetTurns::next_turn(Instant now) {
  holder_.reset();
  if (queue_.empty()) return;
  holder_ = queue_.front().client;
  pop_front();
  turn_ends_ = now + limits_.turn;
  released_.push_back(*holder_);
}

std::optional<Instant> CompareSetTurns::next_deadline() const {
  std::optional<Instant> next;
  if (holder_) next = turn_ends_;
  if (!queue_.empty()) {
    const Instant end = queue_.front().since + limits_.hold;
    next = next ? std::min(*next, end) : end;
  }
  return next;
}

void CompareSetTurns::time_passed(Instant now) {
  if (holder_ && turn_ends_ <= now) next_turn(now);
  while (!queue_.empty() && queue_.front().since + limits_.hold <= now) {
    released_.push_back(queue_.front().client);
    pop_front();
  }
}

void CompareSetTurns::pop_front() {
  queued_.erase(queue_.front().client.value);
  queue_.pop_front();
}

std::vector<ConnectionId> CompareSetTurns::take_released() {
  return std::exchange(released_, {});
}

}  // namespace muster

// Effects that promise something wait here until what they promise is durable, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "rendezvous/service/run_effect.h"

namespace muster {

class HeldEffects {
 public:
  /// `effect` waits until the changes of turn `turn` are durable. Turns only grow.
  void add(RunEffect effect, std::uint64_t turn) { held_.push_back({std::move(effect), turn}); }
  /// What waits for `client` comes to nothing: its number may be used again at once.
  void gone(ConnectionId client) {
    if (!held_.empty()) gone_[client.value] = taken_ + held_.size();
  }
  /// Everything up to `turn` is durable.
  void release(std::uint64_t turn) { released_ = turn; }

  bool empty() const { return held_.empty(); }
  bool has_released() const { return !held_.empty() && held_.front().turn <= released_; }
  /// Moves what has been released to the end of `to`.
  void take_released(std::vector<RunEffect>& to);

 private:
  struct Held {
    RunEffect effect;
    std::uint64_t turn = 0;
  };
  std::deque<Held> held_;
  std::uint64_t released_ = 0;
  std::uint64_t taken_ = 0;  // Since the beginning: the place of the first that is held.
  std::map<std::uint32_t, std::uint64_t> gone_;  // By client: the place up to which it is gone.
};

}  // namespace muster

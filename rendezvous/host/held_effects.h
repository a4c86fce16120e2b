// A queue of effects that must not leave before the state changes they depend on are durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "rendezvous/host/run_effect.h"

namespace muster {

class HeldEffects {
 public:
  /// `effect` waits until the changes of turn `turn` are durable. `turn` never decreases.
  void add(RunEffect effect, std::uint64_t turn) { held_.push_back({std::move(effect), turn}); }
  /// Drops the effects that wait for `client`. Its number may be used again immediately.
  void drop_client(ConnectionId client) {
    if (!held_.empty()) dropped_[client.value] = taken_ + held_.size();
  }
  /// All changes up to `turn` are durable.
  void release(std::uint64_t turn) { released_ = turn; }

  bool empty() const { return held_.empty(); }
  bool has_released() const { return !held_.empty() && held_.front().turn <= released_; }
  /// Moves the released effects to the end of `to`.
  void take_released(std::vector<RunEffect>& to);

 private:
  struct Held {
    RunEffect effect;
    std::uint64_t turn = 0;
  };
  std::deque<Held> held_;
  std::uint64_t released_ = 0;
  std::uint64_t taken_ = 0;  // The number of effects taken so far: the position of held_.front().
  // By client: its effects before this number are dropped.
  std::map<std::uint32_t, std::uint64_t> dropped_;
};

}  // namespace muster

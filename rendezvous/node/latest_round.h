// What a node knows of the newest round that its host has named. It tells the next host, which may
// have no record of the run.
//
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace muster {

class LatestRound {
 public:
  /// The host has named a round. Its number is lower than before if the host was started again
  /// without a record. The restart count never falls.
  void record(std::int64_t round, std::int64_t life, int restart_count) {
    round_ = round;
    life_ = life;
    restart_count_ = std::max(restart_count_, restart_count);
  }
  void record_generation(std::int64_t generation) {
    generation_ = std::max(generation_, generation);
  }
  /// The host goes on with the round in a new life. 0: it does not say one.
  void record_life(std::int64_t life) {
    if (life != 0) life_ = life;
  }

  std::int64_t round() const { return round_; }  // -1: there has been none.
  std::int64_t life() const { return life_; }    // RoundComplete::life of that round.
  std::int64_t generation() const { return generation_; }
  int restart_count() const { return restart_count_; }

 private:
  std::int64_t round_ = -1;
  std::int64_t life_ = 0;
  std::int64_t generation_ = 0;
  int restart_count_ = 0;
};

}  // namespace muster

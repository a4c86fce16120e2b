// How long a command that follows a run waits for a musterd that is being restarted.
#pragma once

#include <chrono>

namespace muster {

class Patience {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// A restart of musterd takes a second. Its nodes are back within some more.
  static constexpr std::chrono::seconds kMax{10};

  void answered() { is_away_ = false; }
  bool is_away() const { return is_away_; }
  /// musterd does not answer. Returns whether to ask again later.
  bool lasts(Time now) {
    if (!is_away_) since_ = now;
    is_away_ = true;
    return now - since_ < kMax;
  }

 private:
  bool is_away_ = false;
  Time since_{};  // Only valid if is_away_.
};

}  // namespace muster

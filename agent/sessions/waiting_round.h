// A round whose workers must not start yet: rank 0's store has to know this node first. It keeps
// what the workers must be told as soon as they may start.
//
// Pure.
#pragma once

#include <optional>
#include <utility>

#include "agent/sessions/rendezvous_session.h"

namespace muster {

class WaitingRound {
 public:
  /// The workers of `round` wait from now on, in place of those of an earlier round.
  void begin(SessionRound round) {
    notice_.reset();
    round_ = std::move(round);
    ++number_;
  }
  /// The number of the latest wait. It differs for each.
  int number() const { return number_; }
  /// Whether the wait with this number is still on.
  bool is_waiting(int number) const { return round_ && number == number_; }
  /// Keeps a notice for the workers that wait, in place of an earlier one. False: none wait.
  bool keep(const JobNotice& notice) {
    if (!round_) return false;
    notice_ = notice;
    return true;
  }

  /// The workers may start now. Nothing: none wait.
  std::optional<SessionRound> take_round() { return std::exchange(round_, std::nullopt); }
  /// The notice for the workers of the round that was taken last.
  std::optional<JobNotice> take_notice() { return std::exchange(notice_, std::nullopt); }
  /// The workers will not start.
  void cancel() { round_.reset(); }

 private:
  std::optional<SessionRound> round_;
  std::optional<JobNotice> notice_;
  int number_ = 0;
};

}  // namespace muster

// Whether the nodes of a round still reach each other, while their host is silent. Rank 0 counts
// the nodes that ask its store, and the other nodes ask it.
//
// Pure.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "base/time.h"
#include "rendezvous/messages/native_codec.h"

namespace muster {

class RoundPeers {
 public:
  /// A round has begun: nobody has reached anybody yet.
  void begin_round();
  /// At rank 0: this node has asked the store.
  void asked_by(int group_rank, Instant now) { asked_[group_rank] = now; }
  /// At other nodes: rank 0 knew the round to be whole at this time.
  void answered(Instant whole_at);
  /// The process was paused: that counts for no silence.
  void forgive(Instant now);

  /// When the nodes of the round last reached each other. At that time no other round had begun
  /// with any of them. Empty: not within the last lease. `may_grow`: the job may have other nodes.
  std::optional<Instant> whole_at(const RoundComplete& round, bool may_grow, Duration lease,
                                  Instant now) const;

  /// Whether it is time to ask the store of rank 0. The next time is a little later.
  bool take_question(Duration lease, Instant now);
  Instant next_question() const { return next_question_; }

  /// At rank 0: what the store answers from now on. Returns whether that has changed.
  bool set_answer(std::optional<Instant> whole_at) {
    return whole_at != std::exchange(answer_, whole_at);
  }
  bool has_answer() const { return answer_.has_value(); }

  /// Training goes on without the host. Returns whether that was not so before.
  bool begin_alone() { return !std::exchange(alone_, true); }
  void end_alone() { alone_ = false; }

 private:
  std::map<int, Instant> asked_;    // When each node last asked.
  std::optional<Instant> reached_;  // When rank 0 last knew the round to be whole.
  Instant next_question_{};
  std::optional<Instant> answer_;
  bool alone_ = false;
};

}  // namespace muster

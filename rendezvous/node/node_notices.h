// The notices that nodes will go: this node's own, and what the workers of the round were told.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"

namespace muster {

/// Nodes of the round will go: the workers should save.
struct WorkersNotice {
  Instant deadline{};
  std::string reason;
  std::vector<std::pair<int, int>> ranks;  // Global ranks that will go, as [first, last].
  bool this_node = false;
  bool stops = true;  // RoundNotice::stops.
};

class NodeNotices {
 public:
  struct Own {
    Instant deadline{};
    std::string reason;
    /// The host has told this node that it goes, because an operator says so. The node says it
    /// again to a host that was started again without a record.
    bool of_host = false;
  };

  /// This node will go. Of several deadlines the earliest holds. Returns whether it has changed.
  bool give(Instant deadline, std::string reason);
  /// The host's notice for the round. A node knows its own deadline better than the host's message,
  /// which was on its way: it goes then, and leaves then by itself if the host is away.
  void learn(WorkersNotice& notice);
  const std::optional<Own>& own() const { return own_; }
  /// Whether this node goes by itself at this time, if no host decides what follows.
  bool goes_at(Instant now) const { return own_ && !own_->of_host && own_->deadline <= now; }
  std::optional<Instant> next_deadline(Instant now) const;

  /// A round's workers start. The host has let this node in: an operator has allowed it, or it is
  /// told anew.
  void begin_round();
  /// Whether the workers must be told: this is not what they know already.
  bool tell(const WorkersNotice& notice);
  /// For a round whose exchange has not ended yet.
  void keep_for(std::int64_t round, WorkersNotice notice) {
    kept_.emplace(round, std::move(notice));
  }
  /// What was kept for this round. What was kept for another one is forgotten.
  std::optional<WorkersNotice> take_kept(std::int64_t round);

  /// The workers of the round have answered. Returns whether that is new.
  bool note_saved() { return !std::exchange(saved_, true); }
  bool have_saved() const { return saved_; }

 private:
  std::optional<Own> own_;
  std::optional<WorkersNotice> latest_;  // What the workers of the round were told last.
  std::optional<std::pair<std::int64_t, WorkersNotice>> kept_;
  bool saved_ = false;
};

}  // namespace muster

// A muster node's part in a rendezvous that a torchrun node hosts.
//
// Pure: each step gets the state, and returns the state to write instead, or that there is nothing
// to do. The rules are those of torchrun 2.13 (docs/rendezvous_rules.md), so torchrun nodes cannot
// tell this node from one of theirs. It differs where torchrun goes wrong:
// - a node is silent if its heartbeat has not changed for long, whatever its clock is;
// - rank 0 keeps its rank, because torchrun nodes keep their first MASTER_ADDR for ever;
// - a node that the others have dropped joins again;
// - nodes without a place do not make the others restart again and again;
// - --spare and --scale-policy apply to this node: torchrun's own nodes have neither.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/settings.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// Write this state in place of the given one. Whether that succeeds or not, the next step gets the
/// state as it is then.
struct WriteState {
  RendezvousState state;
};
/// Nothing to do until the state is read again, a second later.
struct CheckLater {};
/// This node is in a complete round.
struct RoundReady {
  std::int64_t round = 0;
  int rank = 0;
  std::vector<NodeName> nodes;  // By rank.
};
/// The round of this node is over. Returned by each step until join().
struct RoundBroken {
  std::string why;
};
/// The run is over: the node cannot join any more.
struct RunIsClosed {
  bool as_spare = false;  // This node was only waiting on the redundancy list.
};
struct JoinTimedOut {
  std::string reason;
};
/// The request of close() or leave() is done, or could not be done in time.
struct ParticipantDone {
  bool in_time = true;
};
using C10dStep = std::variant<WriteState, CheckLater, RoundReady, RoundBroken, RunIsClosed,
                              JoinTimedOut, ParticipantDone>;

/// The pause after a compare-and-set that another node's write has beaten, before the next try.
/// `lost_before`: how many tries in a row were lost before that one. `chance` is from 0 to 1. As in
/// torchrun, cas_backoff_max_seconds makes the pause a random part of that time; but a node never
/// pauses for longer than a keep-alive interval, because the others would take it for dead.
Duration lost_write_pause(const RendezvousSettings& settings, int lost_before, double chance);

class C10dParticipant {
 public:
  C10dParticipant(NodeName name, RendezvousSettings settings)
      : name_(std::move(name)), settings_(std::move(settings)) {}

  /// Joins the next round, after leaving the last one. The join timeout begins here.
  void join(Instant now);
  /// Joins again within the time limit of the previous join(), whose round has failed.
  void join_again();
  /// Every node of the round has seen that it is complete: this node can leave without making
  /// another node count a wrong world size.
  void mark_round_seen_by_all() { round_seen_by_all_ = true; }
  /// Closes the run: no node may join any more.
  void close(Instant now);
  /// Removes this node from the state.
  void leave(Instant now);

  /// `seen` is the current state; an empty one if there is none yet.
  C10dStep step(const RendezvousState& seen, Instant now, WallTime wall);

  const NodeName& name() const { return name_; }
  /// Which nodes have joined and how many are missing, as text, as of the last step.
  const std::string& progress() const { return progress_; }
  /// Whether the run was closed while this node is in a round.
  bool closed_while_member() const { return closed_while_member_; }
  /// The deadline of join(), close() or leave(), whichever was called last; empty before that.
  std::optional<Instant> join_deadline() const { return deadline_; }
  /// Nodes whose clocks differ from this node's so much that torchrun may take one of the two for
  /// dead, with the microseconds by which they are ahead. Returns each node once.
  std::vector<std::pair<NodeName, std::int64_t>> take_skewed();

 private:
  enum class Goal { Nothing, Join, Stay, Close, Leave };
  struct Pulse {
    WallTime value;
    Instant since;           // When this value was first seen.
    bool confirmed = false;  // The node is alive: fresh when first seen, or has changed since.
    std::int64_t ahead_us = 0;
    bool skew_reported = false;
  };

  void observe(const RendezvousState& seen, Instant now, WallTime wall);
  void update_lacking_since(const RendezvousState& state, Instant now);
  bool holds_back(const RendezvousState& state, Instant now) const;
  void update_progress(const RendezvousState& state);
  RendezvousState without_dead(const RendezvousState& seen, Instant now) const;
  bool has_unconfirmed_participant(const RendezvousState& state) const;
  C10dStep step_join(RendezvousState state, Instant now, WallTime wall);
  std::optional<C10dStep> step_leave_first(RendezvousState& state, Instant now);
  std::optional<C10dStep> step_spare(RendezvousState& state, Instant now, WallTime wall);
  C10dStep step_too_late(RendezvousState state, Instant now);
  C10dStep step_into_round(RendezvousState state, Instant now, WallTime wall);
  C10dStep step_stay(RendezvousState state, Instant now, WallTime wall);
  bool is_listed(const RendezvousState& state) const;
  C10dStep step_close(RendezvousState state, Instant now);
  C10dStep step_leave(RendezvousState state, Instant now);
  C10dStep keep_alive_or_wait(RendezvousState state, Instant now, WallTime wall) const;
  bool remove_everywhere(RendezvousState& state, const NodeName& node) const;
  void participant_left(RendezvousState& state) const;
  void complete(RendezvousState& state) const;
  bool move_waiting_to_redundancy_list(RendezvousState& state) const;
  bool last_call_over(const RendezvousState& state, Instant now, WallTime wall) const;
  std::optional<RoundReady> round_of(const RendezvousState& state) const;
  WallTime stamp(WallTime wall) const;

  NodeName name_;
  RendezvousSettings settings_;
  Goal goal_ = Goal::Nothing;
  std::optional<Instant> deadline_;
  bool leave_first_ = false;
  bool round_seen_by_all_ = true;
  bool was_spare_ = false;
  bool took_part_ = false;                  // This node has been in a complete round.
  std::optional<std::int64_t> left_round_;  // The complete round that this node has left last.
  std::optional<Instant> lacking_since_;    // Since when fewer than the minimum have joined.
  bool closed_while_member_ = false;
  Instant ready_at_{};
  std::int64_t round_ = 0;  // The round of this node.
  std::map<NodeName, Pulse> pulses_;
  std::optional<std::pair<WallTime, Instant>> last_call_;  // The deadline, and when it appeared.
  NodeMap<std::int64_t> last_ranks_;                       // In the last complete round seen.
  std::string progress_;
};

}  // namespace muster

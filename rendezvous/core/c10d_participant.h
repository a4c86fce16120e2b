// What one muster node does with the state of a rendezvous that a torchrun node hosts.
//
// Pure: it is shown the state, and says what to write instead, or that there is nothing to do. Its
// rules are torchrun 2.13's (docs/rendezvous.md), so that torchrun nodes cannot tell it from one of
// theirs; it differs where torchrun goes wrong:
// - a silent node is judged by when its heartbeat was last seen to change, not by its clock;
// - whoever had rank 0 keeps it, as torchrun nodes keep their first MASTER_ADDR for ever;
// - a node that the others have dropped joins again;
// - nodes without a place do not make the others restart again and again;
// - --spare and --scale-policy hold for this node: torchrun's own nodes know neither.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/settings.h"
#include "rendezvous/core/time.h"

namespace muster {

/// To be written in place of the state that was shown. Whether that succeeds or not, the next step
/// is given the state that is there then.
struct WriteState {
  RendezvousState state;
};
/// Nothing to do until the state is looked at again, a second later.
struct LookLater {};
/// This node is in a complete round.
struct RoundReady {
  std::int64_t round = 0;
  int rank = 0;
  std::vector<NodeName> nodes;  // By rank.
};
/// The round that this node is in is no good any more. Told at each step until join().
struct RoundBroken {
  std::string why;
};
/// The run is over: joining is in vain.
struct RunIsClosed {
  bool as_spare = false;  // This node was only waiting for a place.
};
struct JoinTimedOut {
  std::string reason;
};
/// What close() or leave() asked for is done, or cannot be done in time.
struct ParticipantDone {
  bool in_time = true;
};
using C10dStep = std::variant<WriteState, LookLater, RoundReady, RoundBroken, RunIsClosed,
                              JoinTimedOut, ParticipantDone>;

class C10dParticipant {
 public:
  C10dParticipant(NodeName name, RendezvousSettings settings)
      : name_(std::move(name)), settings_(std::move(settings)) {}

  /// Wants to be in the next round: leaves the last one first. The time limit counts from here.
  void join(Instant now);
  /// The same, but within the limit of the join() before: its round came to nothing.
  void join_again();
  /// Every node of the round has seen that it is complete: leaving it can mislead nobody.
  void settled() { settled_ = true; }
  /// Nobody may join any more.
  void close(Instant now);
  /// Takes this node out of the state.
  void leave(Instant now);

  /// `seen` is the state as it is now: an empty one if there is none yet.
  C10dStep step(const RendezvousState& seen, Instant now, WallTime wall);

  const NodeName& name() const { return name_; }
  /// Who has joined and how many are missing, in words. Of the last step.
  const std::string& progress() const { return progress_; }
  /// True if the run was closed by somebody while this node is in a round.
  bool closed_while_member() const { return closed_while_member_; }
  /// Until when join() may go on; nothing if it was not asked for.
  std::optional<Instant> join_deadline() const { return deadline_; }
  /// Nodes whose clocks differ from ours so much that torchrun may take one of us for dead, each
  /// once, with their microseconds ahead of us.
  std::vector<std::pair<NodeName, std::int64_t>> take_skewed();

 private:
  enum class Goal { Nothing, Join, Stay, Close, Leave };
  struct Pulse {
    WallTime value;
    Instant since;           // When it was seen to become this.
    bool confirmed = false;  // It is no leftover: it was fresh when first seen, or has changed.
    std::int64_t ahead_us = 0;
    bool skew_told = false;
  };

  void observe(const RendezvousState& seen, Instant now, WallTime wall);
  void look_for_lack(const RendezvousState& state, Instant now);
  bool holds_back(const RendezvousState& state, Instant now) const;
  void tell_progress(const RendezvousState& state);
  RendezvousState without_dead(const RendezvousState& seen, Instant now) const;
  bool anybody_suspect(const RendezvousState& state) const;
  C10dStep step_join(RendezvousState state, Instant now, WallTime wall);
  std::optional<C10dStep> step_leave_first(RendezvousState& state, Instant now);
  std::optional<C10dStep> step_spare(RendezvousState& state, Instant now, WallTime wall);
  C10dStep step_too_late(RendezvousState state, Instant now);
  C10dStep step_into_round(RendezvousState state, Instant now, WallTime wall);
  C10dStep step_stay(RendezvousState state, Instant now, WallTime wall);
  C10dStep step_close(RendezvousState state, Instant now);
  C10dStep step_leave(RendezvousState state, Instant now);
  C10dStep alive_or_later(RendezvousState state, Instant now, WallTime wall) const;
  bool remove_everywhere(RendezvousState& state, const NodeName& node) const;
  void participant_left(RendezvousState& state) const;
  void complete(RendezvousState& state) const;
  bool park_surplus(RendezvousState& state) const;
  bool last_call_over(const RendezvousState& state, Instant now, WallTime wall) const;
  std::optional<RoundReady> round_of(const RendezvousState& state) const;
  WallTime stamp(WallTime wall) const;

  NodeName name_;
  RendezvousSettings settings_;
  Goal goal_ = Goal::Nothing;
  std::optional<Instant> deadline_;
  bool leave_first_ = false;
  bool settled_ = true;
  bool was_spare_ = false;
  bool took_part_ = false;                // In a complete round.
  std::optional<Instant> lacking_since_;  // Fewer than the minimum have joined.
  bool closed_while_member_ = false;
  Instant ready_at_{};
  std::int64_t round_ = 0;  // That this node is a member of.
  std::map<NodeName, Pulse> pulses_;
  std::optional<std::pair<WallTime, Instant>> last_call_;  // The deadline, and when it appeared.
  NodeMap<std::int64_t> last_ranks_;                       // Of the last complete round seen.
  std::string progress_;
};

}  // namespace muster

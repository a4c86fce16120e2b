// A run as torchrun nodes see it: renders the state that they read, and interprets the states that
// they propose.
//
// torchrun nodes know a run only as one state, which each of them rewrites by compare-and-set. This
// class keeps the data that concerns only them: their wall clocks, the heartbeats and the deadline
// by these clocks, and the state that was shown last. The rules of rounds are not here:
// TorchrunDoor passes in the situation of the run, and applies the steps. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/rounds/run_core.h"
#include "rendezvous/torchrun/rdzv_operation.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// A compare-and-set of a torchrun node.
struct StateProposal {
  ConnectionId from;
  RendezvousState seen;  // The state in its expected value; a fresh state for "no state".
  RendezvousState proposed;
};

class TorchrunView {
 public:
  using NodeId = MemberTable::Id;

  explicit TorchrunView(Duration keep_alive_interval) : keep_alive_interval_(keep_alive_interval) {}

  // Clocks. `wall` is the wall clock of this host.

  /// A torchrun node has become a member.
  void add(NodeId torchrun_node) { clocks_[torchrun_node] = {}; }
  /// Forgets the nodes that are no members any more, and a deadline that the run does not have any
  /// more. Must be called after each change of the run, before the other functions.
  void follow(const RunCore& run);
  /// The node wrote a heartbeat by its own clock. If that clock is far off, returns once for the
  /// node by how many microseconds it is ahead of `wall`, for the log.
  std::optional<std::int64_t> handle_heartbeat(NodeId node, WallTime at, Instant now,
                                               WallTime wall);
  /// A node that waits for a key of the store writes no heartbeat. The view renews it until
  /// end_wait().
  void begin_wait(NodeId node);
  void end_wait(NodeId node, WallTime wall);
  /// Whether the node's clock is so slow that other nodes would take the node for dead. Then the
  /// view renews its heartbeat.
  bool is_slow(NodeId node) const;

  // Rendering.

  struct Node {
    NodeId id = 0;
    const NodeName* name = nullptr;
    bool native = false;
    int rank = 0;
  };
  /// The situation of the run. The lists are in the order in which they are shown.
  struct Run {
    std::uint64_t revision = 0;  // RunCore::whole_revision().
    std::int64_t round = 0;
    bool complete = false;
    bool closed = false;
    std::optional<Duration> last_call_left;
    std::vector<Node> participants, wait_list, redundancy_list;
    std::vector<Node> alive;  // All nodes whose heartbeats are shown.
  };
  /// Renews the heartbeats that the view writes for nodes, all together and at most once in a
  /// keep-alive interval. Returns whether rebuild() is needed to show them.
  bool renew_if_due(Instant now, WallTime wall, bool has_natives);
  void rebuild(const Run& run, WallTime wall);
  /// Whether shown() is up to date, but for the heartbeats.
  bool shows(const RunCore& run) const { return shown_revision_ == run.whole_revision(); }
  const RendezvousState& shown() const { return shown_; }
  /// Changes with every rebuild(). Encodings of shown() can be cached until then.
  std::uint64_t revision() const { return revision_; }
  /// The state has no deadline until rebuild() gets one.
  void reset_deadline() { deadline_.reset(); }
  /// Attributes that muster does not know.
  const std::vector<ForeignAttribute>& foreign() const { return foreign_; }
  void set_foreign(const std::vector<ForeignAttribute>& foreign) { foreign_ = foreign; }

  // Understanding.

  struct Understood {
    enum class Kind {
      Step,     // `operation` is the step.
      Nothing,  // The writer proposes the state that it has seen.
      Unknown,  // Not a step of a torchrun node.
    };
    Kind kind = Kind::Unknown;
    StateOperation operation;
  };
  static Understood understand(const StateProposal& proposal,
                               const std::optional<NodeName>& writer);

  /// The list that has the node of a step.
  enum class Listed { Nowhere, Away, Participant, Waiting, Redundant, Elsewhere };
  /// The current situation of the run. The writer of a step may have seen an older state.
  struct Situation {
    std::int64_t round = 0;
    bool complete = false;
    bool closed = false;
    bool has_settings = false;  // The run's minimum and maximum are known, so the rules apply.
    std::size_t participants = 0;
    Listed node = Listed::Nowhere;
  };
  enum class Applies { No, Yes, IfRoundIsAsSeen };
  static Applies applies(const StateOperation& operation, const StateProposal& proposal,
                         const Situation& now);
  /// Whether the data that a writer uses to join or complete a round have not changed since `seen`.
  /// `participants` are the current ones.
  bool is_round_as_seen(const RendezvousState& seen, const Situation& now,
                        const std::vector<Node>& participants) const;
  /// Whether the writer of such a step counts the participants.
  static bool counts_participants(StateOperation::Kind kind);

 private:
  struct Clock {
    WallTime heartbeat;        // As the node wrote it.
    std::int64_t skew_us = 0;  // How far it is ahead of this host's clock.
    bool skew_reported = false;
  };

  std::int64_t behind_us(const Clock& clock) const;
  bool is_renewed(const Node& node) const;
  void renew_stamp(Instant now, WallTime wall);
  /// How far the fastest clock is ahead of this host's clock; 0 if that is little.
  std::int64_t measure_ahead() const;
  void catch_up_with_fastest(std::int64_t ahead_before, WallTime wall);

  Duration keep_alive_interval_;
  std::map<NodeId, Clock> clocks_;  // Of torchrun nodes.
  std::set<NodeId> waiting_;        // Nodes that wait for a key of the store.
  std::int64_t ahead_us_ = 0;       // How far the fastest clock is ahead, if by much.
  bool slow_clocks_ = false;        // A heartbeat is renewed because its node's clock is slow.

  std::optional<Instant> stamped_;  // When the heartbeats of muster nodes were renewed.
  WallTime stamp_;
  std::int64_t stamped_ahead_us_ = 0;
  std::optional<WallTime> deadline_;  // As shown; computed when it is first shown.
  bool deadline_is_ours_ = false;     // Computed here, from the run's last call.
  std::vector<ForeignAttribute> foreign_;
  RendezvousState shown_;
  std::uint64_t revision_ = 0;
  std::optional<std::uint64_t> shown_revision_;    // The run's, of shown_.
  std::optional<std::uint64_t> members_revision_;  // As of the last follow().
  std::uint64_t last_call_revision_ = 0;           // The same.
};

}  // namespace muster

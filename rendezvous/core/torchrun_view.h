// A run as torchrun nodes see it: renders the state that they read, and understands the states that
// they propose.
//
// torchrun nodes know a run only as one state, which each of them rewrites by compare-and-set. This
// class keeps what concerns them alone: their wall clocks, the heartbeats and the deadline in terms
// of these clocks, and the state that was shown last. The rules of rounds are not here: Rendezvous
// says how the run stands, and carries out the steps that are understood. Pure, as Rendezvous is.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/core/liveness.h"
#include "rendezvous/core/rdzv_operation.h"
#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/store_request.h"
#include "rendezvous/core/time.h"

namespace muster {

/// What a torchrun node asks by compare-and-set.
struct StateProposal {
  ConnectionId from;
  RendezvousState seen;  // What its expected value says; a fresh state for "no state".
  RendezvousState proposed;
};

class TorchrunView {
 public:
  using NodeId = Liveness::Id;

  explicit TorchrunView(Duration keep_alive_interval) : keep_alive_interval_(keep_alive_interval) {}

  // Clocks. `wall` is the wall clock of this host.

  /// A torchrun node is a member from now on, until remove(). Any member may be removed.
  void add(NodeId torchrun_node) { clocks_[torchrun_node] = {}; }
  void remove(NodeId node);
  void clear();
  /// The node wrote a heartbeat by its own clock. Returns by how many microseconds that clock is
  /// ahead of `wall`, once for each node whose clock is so far off that people should know.
  std::optional<std::int64_t> take_heartbeat(NodeId node, WallTime at, Instant now, WallTime wall);
  /// While it waits for a key of the store a node writes no heartbeat: this class renews it.
  void begin_wait(NodeId node);
  void end_wait(NodeId node, WallTime wall);
  /// Its clock is so slow that others would take it for dead: this class renews its heartbeat.
  bool is_slow(NodeId node) const;

  // Rendering.

  struct Node {
    NodeId id = 0;
    const NodeName* name = nullptr;
    bool native = false;
    int rank = 0;
  };
  /// How the run stands. The lists are in the order in which they are shown.
  struct Run {
    std::int64_t round = 0;
    bool complete = false;
    bool closed = false;
    std::optional<Duration> last_call_left;
    std::vector<Node> participants, wait_list, redundancy_list;
    std::vector<Node> alive;  // All whose heartbeats are shown.
  };
  /// Renews the heartbeats that are not the nodes' own, all together and at most once in a
  /// keep-alive interval. Returns whether rebuild() is needed to show them.
  bool renew_if_due(Instant now, WallTime wall, bool has_natives);
  void rebuild(const Run& run, WallTime wall);
  const RendezvousState& shown() const { return shown_; }
  /// Changes with every rebuild(): what was made of shown() can be kept until then.
  std::uint64_t revision() const { return revision_; }
  /// The last call began anew, or is over.
  void reset_deadline() { deadline_.reset(); }
  /// Among themselves, torchrun nodes say when the last call ends.
  void set_deadline(std::optional<WallTime> deadline);
  bool shows_deadline() const { return deadline_.has_value(); }
  /// Attributes that muster does not know.
  const std::vector<ForeignAttribute>& foreign() const { return foreign_; }
  void set_foreign(const std::vector<ForeignAttribute>& foreign) { foreign_ = foreign; }

  // Understanding.

  struct Understood {
    enum class Kind {
      Step,     // `operation`
      Nothing,  // The writer proposes what it has seen.
      Unknown,  // No step that a torchrun node takes.
    };
    Kind kind = Kind::Unknown;
    StateOperation operation;
  };
  static Understood understand(const StateProposal& proposal,
                               const std::optional<NodeName>& writer);

  /// Where the run has the node that a step is about.
  enum class Listed { Nowhere, Away, Participant, Waiting, Redundant, Elsewhere };
  /// How the run stands when a step is to be taken. The writer may have seen an older state.
  struct Situation {
    std::int64_t round = 0;
    bool complete = false;
    bool closed = false;
    bool has_settings = false;  // The run's minimum and maximum are known, so the rules count.
    std::size_t participants = 0;
    Listed node = Listed::Nowhere;
  };
  enum class Applies { No, Yes, IfRoundIsAsSeen };
  static Applies applies(const StateOperation& operation, const StateProposal& proposal,
                         const Situation& now);
  /// Whether nothing has changed since `seen` that the writer looked at when it joined or completed
  /// a round. `participants` are those of now.
  bool is_round_as_seen(const RendezvousState& seen, const Situation& now,
                        const std::vector<Node>& participants) const;
  /// Whether the writer of such a step has counted the participants.
  static bool counts_participants(StateOperation::Kind kind);

 private:
  struct Clock {
    WallTime heartbeat;        // As the node wrote it.
    std::int64_t skew_us = 0;  // Ahead of this host's clock.
    bool told = false;
  };

  std::int64_t behind_us(const Clock& clock) const;
  bool is_renewed(const Node& node) const;
  void renew_stamp(Instant now, WallTime wall);
  /// From all skews: how far the fastest clock is ahead.
  std::int64_t measure_ahead() const;
  void catch_up_with_fastest(std::int64_t ahead_before, WallTime wall);

  Duration keep_alive_interval_;
  std::map<NodeId, Clock> clocks_;  // Of torchrun nodes.
  std::set<NodeId> waiting_;        // Those that wait for a key of the store.
  std::int64_t ahead_us_ = 0;       // The fastest clock, if it is off by much.
  bool slow_clocks_ = false;        // Some heartbeat is renewed here for its slow clock.

  std::optional<Instant> stamped_;  // When the heartbeats of muster nodes were renewed.
  WallTime stamp_;
  std::int64_t stamped_ahead_us_ = 0;
  std::optional<WallTime> deadline_;  // As shown; made when it is first shown.
  bool deadline_is_ours_ = false;     // Made here of the run's last call.
  std::vector<ForeignAttribute> foreign_;
  RendezvousState shown_;
  std::uint64_t revision_ = 0;
};

}  // namespace muster

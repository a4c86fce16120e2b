// Nodes that will go: who is told, when the round ends for them, and that they stay out of the next
// one. docs/rendezvous_rules.md, "Notices".
#pragma once

#include <optional>
#include <string>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class Notices {
 public:
  explicit Notices(RunCore& run) : run_(run) {}

  void on(const NodeNotified& event);
  void on(const NodeSaved& event);
  /// An operator says that the nodes of this name or address will go.
  void give(const OperatorAsked& asked);
  /// An operator lets these nodes stay. If the running round has a notice for them, it restarts:
  /// its workers may have saved and ended already.
  struct Withdrawn {
    bool found = false;  // There was such a node.
    bool restarts = false;
  };
  Withdrawn withdraw(const std::string& node);
  /// The consequences of give(), as sentences for the operator.
  std::string describe(const OperatorAsked& asked) const;

  /// Tells the nodes of a running round. Ends the round when all its nodes have answered, and at
  /// the deadline. Returns whether it did that.
  bool apply_to_complete_round();
  /// Returns whether it has changed something.
  bool apply_while_gathering();
  /// Called when a round is complete.
  void begin_round();
  /// If the node will go and is not needed for the next round, moves it out of the rounds and
  /// returns true.
  bool move_out_if_doomed(Member& member);
  /// For a member that is about to be removed.
  void forget(const Member& member);

  /// The run ends with the round, or cannot begin another one, if the doomed nodes go now.
  bool would_stop() const;
  /// Whether nobody is left in the round who has not answered. A torchrun node never answers.
  bool all_have_answered() const;

 private:
  void add(Member& member, Doom doom, bool by_operator);
  void update_round_notice();
  std::optional<RoundNotice> make_round_notice() const;
  void tell_nodes();
  PreemptionNotice make_message(const RoundNotice& notice) const;
  void end_round(const RoundNotice& notice);
  bool let_in_if_needed();
  std::string doomed_text(const NodeName& first, std::size_t count,
                          const std::string& reason) const;

  RunCore& run_;
};

}  // namespace muster

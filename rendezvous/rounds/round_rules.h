// The rules of rounds: which nodes are admitted, when a round is complete, when the next one
// begins, and when the run ends. The state table is in docs/rendezvous_rules.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class RoundRules {
 public:
  explicit RoundRules(RunCore& run) : run_(run) {}

  /// Does all that the rules ask for now. Called after each event.
  void apply_rules();
  /// The deadline of rank 0 may be over.
  void prepare_deadline();

  void complete_round();
  void prepare_round();
  void announce_round(const Member* knows_it = nullptr);
  RoundComplete announcement(const Member& member, ConnectionId to) const;
  void number_workers(const std::vector<const Member*>& by_rank);
  void move_waiting_to_redundancy_list();
  void drop_rank_0(const NodeName& who, const std::string& what);
  /// Counts a failure of a node in the running round, and restarts the round.
  void fail_round(const Member& member, const WorkersFailed& failed);
  /// A node of the running round is gone. Restarts the round, or ends the run if --restart-policy
  /// has no restart left for that.
  void lose_node(RestartCause cause, const NodeName& who, const std::string& what);
  /// Charges the restart for a failure of a round that is over or ends now. Returns false if none
  /// is left: then the run has ended.
  bool charge(AttemptEnd end, const NodeName& who, const std::string& what);
  /// The same, but returns the outcome in place of ending the run with it.
  std::optional<RunEnded> try_to_charge(AttemptEnd end, const NodeName& who,
                                        const std::string& what);
  void raise_restart_count(int reported);
  void begin_restart(RestartCause cause, const NodeName& who, const std::string& what);
  void release_from_exit_barrier(Member& member);
  /// The run ends because nodes of it will go. No node has failed.
  void preempt_run(const std::string& why);
  void end_run(bool succeeded, std::optional<NodeName> who, const std::string& why);
  void end_run(RunEnded outcome);
  void end_if_finished();
  /// Ends the run for all nodes and forgets its members, because an invariant is broken.
  void abandon(std::string_view invariant);

 private:
  bool apply_rules_to_complete_round();
  bool apply_rules_while_gathering();
  Member* first_native(Place where);
  bool admit(Member& member);
  bool admit_one();
  bool admit_spare();
  std::size_t spare_target() const;
  bool may_complete() const;
  bool all_tell_progress() const;
  void next_round();
  void end_if_hopeless();
  void tell_outcome_to_all();

  RunCore& run_;
};

}  // namespace muster

// Views of a run for people: copies, made on request.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/time.h"
#include "rendezvous/rounds/run_core.h"
#include "rendezvous/rounds/run_view.h"

namespace muster {

class RunViewer {
 public:
  explicit RunViewer(const RunCore& run) : run_(run) {}

  RunStanding run_state() const;
  /// Everything but the id and the fields that come from the run's history.
  RunSummary summary() const;
  /// Empty: restarts have one budget, as under torchrun, or no node has joined yet.
  std::optional<RestartBudgets> budgets() const;
  /// The summary and at most `nodes` nodes (kMaxViewedNodes at most) from the `offset`th one on.
  RunView view(std::size_t offset, std::size_t nodes, Instant now) const;
  std::array<std::size_t, kNodeStates> nodes_by_state() const;
  /// The group rank of a node in the newest complete round, also if the node has been lost since.
  std::optional<int> rank_of(const NodeName& name) const;
  /// The global rank of the first worker of a member of the round; empty: it is not known.
  std::optional<int> first_rank_of(const Member& member) const;

 private:
  NodeState node_state(const Member& member) const;
  NodeView view_of(const Member& member, Instant now) const;
  static DoomView doom_view(const Doom& doom, Instant now);
  bool has_answered(const Member& member) const;
  std::optional<NoticeView> notice(Instant now) const;
  void add_missing(RunView& view, Instant now) const;

  const RunCore& run_;
};

}  // namespace muster

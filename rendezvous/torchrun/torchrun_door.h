// The c10d door of a run: applies the operations of torchrun nodes. TorchrunView renders the state
// that these nodes see, and derives the operations from their proposals.
//
// Pure. The caller has advanced the run's time and takes the run's actions afterwards.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "rendezvous/rounds/run_core.h"
#include "rendezvous/torchrun/torchrun_view.h"

namespace muster {

enum class ProposalVerdict {
  Accepted,  // The state is now the proposed one.
  Merged,    // The operation was applied to a newer state than the writer saw: reply with that.
  Lost,      // Nothing was changed: reply with the current state when it is the client's turn.
  Refused,   // The proposal is not valid, or uses a muster node's name: it must not be retried.
};
struct ProposalResult {
  ProposalVerdict verdict = ProposalVerdict::Lost;
  std::string refusal;  // The reason, if the verdict is Refused.
  RendezvousActions actions;
};

class TorchrunDoor {
 public:
  TorchrunDoor(RunCore& run, TorchrunView& view) : run_(run), view_(view) {}

  void note_request(ConnectionId client);
  void waits(ConnectionId client, StoreWait how, WallTime wall);
  static bool ignores_close(const RunCore& run, ConnectionId client);
  const RendezvousState& render(WallTime wall);
  /// The result is without the actions.
  ProposalResult propose(const StateProposal& proposal, WallTime wall);

 private:
  TorchrunView& view();
  void rebuild(WallTime wall);
  std::vector<TorchrunView::Node> viewed(std::initializer_list<Place> places) const;
  std::string refusal_of(const TorchrunView::Understood& understood, const StateProposal& proposal,
                         const Member* client, const Member* about) const;
  bool needs_more_places(const StateOperation& operation, const StateProposal& proposal) const;
  void remove_dead(const StateOperation& operation);
  bool may_apply(const StateOperation& operation, const StateProposal& proposal);
  bool miscounts_participants(const StateOperation& operation) const;
  void apply(const StateOperation& operation, const StateProposal& proposal, WallTime wall);
  Member* torch_member(const StateOperation& operation, ConnectionId client, WallTime wall);
  void torch_leaves(Member& member, const StateProposal& proposal);
  void torch_waits(Member& member);
  void closed_by_torch();

  RunCore& run_;
  TorchrunView& view_;
};

}  // namespace muster

// The rules of rounds: which nodes are admitted, when a round is complete, and when the next one
// begins.

#include <algorithm>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {

void Rendezvous::apply_rules() {
  if (returns_ && returns_->until <= now_) {
    never_back_ = not_back();
    returns_.reset();
    changed();
  }
  while (!outcome_ &&
         (complete() ? apply_rules_to_complete_round() : apply_rules_while_gathering())) {
  }
  end_if_hopeless();
}

bool Rendezvous::apply_rules_to_complete_round() {
  if (members_.count(Place::Participant) == 0) {
    next_round();
    return true;
  }
  // All nodes that waited for the torchrun nodes to restart are gone: the torchrun nodes go on.
  if (draining() && expected() <= members_.counts().torch_redundant) {
    move_to(Phase::Running);
    changed();
  }
  if (restart_without_excluded()) return true;
  // Newcomers restart the others only if the scale policy allows it, and never after a node has
  // finished.
  if (draining() || closed_ || !run_ || run_->scale_policy != ScalePolicy::Now ||
      members_.counts().succeeded > 0)
    return false;
  if (static_cast<int>(members_.count(Place::Participant)) >= run_->max_nodes) return false;
  Member* newcomer = first_native(Place::Redundant);
  if (newcomer == nullptr) return false;
  newcomer->ended_a_round = true;
  members_.set_place(*newcomer, Place::Waiting);
  members_.set_join_deadline(*newcomer, later(now_, run().join_timeout));
  begin_restart(RestartCause::NodeJoined, newcomer->name, "it wants to join");
  return true;
}

bool Rendezvous::apply_rules_while_gathering() {
  if (!run_ || closed_) return false;  // Only torchrun nodes: they follow their own rules.
  if (recovery_) return false;         // The resuming nodes may already have a round.
  if (let_in_if_needed() || admit_one() || admit_spare()) return true;
  const bool enough = static_cast<int>(members_.count(Place::Participant)) >= run_->min_nodes;
  if (enough && !deadline_) {
    const Duration whole = run_->last_call_timeout;
    deadline_ = later(now_, std::min(whole, last_call_left_.value_or(whole)));
    last_call_left_.reset();
    torchrun_.reset_deadline();
    changed();
  } else if (!enough && (deadline_ || torchrun_.shows_deadline())) {
    deadline_.reset();
    torchrun_.reset_deadline();
    changed();
  }
  if (!may_complete()) return false;
  complete_round();
  return true;
}

Member* Rendezvous::first_native(Place where) {
  return members_.first_in(where, [](const Member& member) { return member.native; });
}

bool Rendezvous::admit(Member& member) {
  if (!member.join_deadline) members_.set_join_deadline(member, later(now_, run().join_timeout));
  members_.set_place(member, Place::Participant);
  return true;
}

bool Rendezvous::admit_one() {
  const auto taken = members_.count(Place::Participant);
  if (Member* back = first_native(Place::Waiting)) {
    if (taken < static_cast<std::size_t>(run().max_nodes)) return admit(*back);
    members_.set_place(*back, Place::Redundant);
    members_.set_join_deadline(*back, std::nullopt);
    return true;
  }
  Member* newcomer = first_native(Place::Redundant);
  if (newcomer == nullptr) return false;
  const bool only_replaces = !first_round() && run().scale_policy == ScalePolicy::Never;
  const auto limit = only_replaces ? spare_target() : static_cast<std::size_t>(run().max_nodes);
  // Places are reserved for nodes that are about to come back, until the last call is over.
  const bool over = deadline_ && *deadline_ <= now_;
  return taken + (over ? 0 : expected()) < limit && admit(*newcomer);
}

bool Rendezvous::admit_spare() {
  const auto taken = members_.count(Place::Participant);
  Member* spare = first_native(Place::Standby);
  if (!first_round())
    return spare != nullptr && taken + expected() < spare_target() && admit(*spare);
  const bool wanted = spare != nullptr && taken < static_cast<std::size_t>(run().min_nodes);
  // A first round that had enough nodes has lost some of them.
  if (wanted && !spares_step_in_) spares_step_in_ = later(now_, run().last_call_timeout);
  if (!spares_step_in_ || *spares_step_in_ > now_) return false;
  if (wanted) return admit(*spare);
  spares_step_in_.reset();
  return false;
}

/// The number of nodes that are alive and about to join this round.
std::size_t Rendezvous::expected() const {
  return members_.count(Place::Restarting) + members_.count(Place::Away) +
         members_.count(Place::Waiting) + members_.count(Place::Resuming) + not_back() +
         members_.counts().torch_redundant;
}

/// Nodes that only replace others are admitted up to this number of participants.
std::size_t Rendezvous::spare_target() const {
  const auto least = std::max(static_cast<std::size_t>(run().min_nodes), last_world_);
  return std::min(least, static_cast<std::size_t>(run().max_nodes));
}

/// Whether the round must not be completed yet, even if there are enough nodes or the last call is
/// over.
bool Rendezvous::is_held_up() const {
  // A round with an absent node would break at once if that node does not come back.
  return recovery_ || members_.counts().absent > 0 || unseen_.may_run(now_);
}

bool Rendezvous::may_complete() const {
  const auto taken = static_cast<int>(members_.count(Place::Participant));
  if (taken < run().min_nodes || is_held_up()) return false;
  if (taken >= run().max_nodes || (deadline_ && *deadline_ <= now_)) return true;
  if (first_round() || expected() > 0) return false;
  // A restart: every node that is still alive has come back, so there is no node to wait for.
  return members_.counts().returned > 0;
}

void Rendezvous::complete_round() {
  const std::vector<Member*> members = members_.list(Place::Participant);
  std::vector<RankCandidate> candidates;
  for (const Member* member : members)
    candidates.push_back({.name = member->name,
                          .native = member->native,
                          .hosts_rendezvous = member->hosts_rendezvous,
                          .preferred = member->preferred_rank,
                          .last_rank = member->last_rank});
  if (members.empty()) return violated("a round is complete that has no members");
  for (auto& [id, member] : members_) {
    members_.set_last_rank(member, std::nullopt);
    members_.mark_unrecorded(member.name);
  }
  for (const LostNode& node : lost_)
    members_.mark_unrecorded(node.name);
  std::vector<const Member*> by_rank;
  for (const std::size_t index : assign_group_ranks(candidates)) {
    Member* member = members[index];
    member->rank = static_cast<int>(by_rank.size());
    members_.set_last_rank(*member, member->rank);
    members_.set_join_deadline(*member, std::nullopt);
    by_rank.push_back(member);
  }
  for (Member* member : members_.list(Place::Restarting))
    members_.set_place(*member, Place::LeftOut);
  if (run_ && members.size() >= static_cast<std::size_t>(run_->max_nodes))
    move_waiting_to_redundancy_list();
  unseen_.clear();
  returns_.reset();
  move_to(Phase::Preparing);
  may_be_complete_ = false;
  had_round_ = true;
  never_back_ = 0;
  generation_ = ++highest_generation_;
  uncounted_ = generation_;
  restored_generation_.reset();
  awaited_.clear();
  restart_cause_.reset();
  last_world_ = by_rank.size();
  round_lease_ = setup_.lease;
  lost_.clear();
  deadline_.reset();
  torchrun_.reset_deadline();
  spares_step_in_.reset();
  changed();
  number_workers(by_rank);
  // A torchrun node at rank 0 makes the workers' store itself.
  if (by_rank.front()->native) return prepare_round();
  announce_round();
}

/// For a full round: torchrun nodes restart as long as a node is on the wait list, and a torchrun
/// node that is on it stays there.
void Rendezvous::move_waiting_to_redundancy_list() {
  for (Member* member : members_.list(Place::Waiting)) {
    members_.set_place(*member, Place::Redundant);
    members_.set_join_deadline(*member, std::nullopt);
  }
}

void Rendezvous::prepare_round() {
  const Member* first = rank_0();
  if (first == nullptr) return violated("a round is prepared that has no rank 0");
  prepared_by_.reset();
  if (!first->connection) return;  // Rank 0 gets the message when it comes back.
  prepared_by_ = later(now_, setup_.prepare_within);
  actions_.push_back(PrepareStore{*first->connection, round_});
}

/// Rank 0 cannot host the workers' store. It is removed, and the others meet in the next round. The
/// run ends if they are too few, or after kMaxPrepareTries such failures in a row.
void Rendezvous::drop_rank_0(const NodeName& who, const std::string& what) {
  Member* first = members_.named(who);
  if (first == nullptr) return;
  ++prepare_failures_;
  const std::size_t left = members_.size() - members_.counts().succeeded - 1;
  if (prepare_failures_ >= kMaxPrepareTries || left < static_cast<std::size_t>(run().min_nodes))
    return end_run(false, who, what);
  lose(*first, RestartCause::NodeLost, what);
}

/// Assigns the ranks of all workers; none with a torchrun node, which writes its number of workers
/// only to the store.
void Rendezvous::number_workers(const std::vector<const Member*>& by_rank) {
  std::vector<NodeWorkers> nodes;
  for (const Member* member : by_rank) {
    if (!member->native) return workers_.clear();
    nodes.push_back({member->role, member->local_world_size});
  }
  workers_ = assign_worker_ranks(nodes);
}

void Rendezvous::announce_round(const Member* knows_it) {
  move_to(Phase::Running);
  // With a torchrun node in the round (workers_ is empty), no node can ask rank 0 whether the round
  // is whole: the muster nodes are fenced.
  unseen_.begin(round_, generation_, workers_.size());
  changed();
  std::vector<std::pair<const Member*, ConnectionId>> told;
  members_.for_each_in(Place::Participant, [&](const Member& member) {
    if (member.native && member.connection && &member != knows_it)
      told.emplace_back(&member, *member.connection);
  });
  std::sort(told.begin(), told.end(),
            [](const auto& a, const auto& b) { return a.first->rank < b.first->rank; });
  for (const auto& [member, connection] : told) {
    actions_.push_back(announcement(*member, connection));
    if (closed_) actions_.push_back(RunClosed{connection});
  }
}

RoundComplete Rendezvous::announcement(const Member& member, ConnectionId to) const {
  RoundComplete message{.to = to,
                        .round = round_,
                        .group_rank = {member.rank},
                        .group_world_size = static_cast<int>(last_world_),
                        .restart_count = restarts_used_,
                        .workers = std::nullopt,
                        .store = store_,
                        .life = setup_.life,
                        .generation = generation_};
  const auto rank = static_cast<std::size_t>(member.rank);
  if (rank < workers_.size())
    message.workers = workers_[rank];
  else if (!workers_.empty())
    violated("a member of the round has a rank beyond its size");
  return message;
}

void Rendezvous::begin_restart(RestartCause cause, const NodeName& who, const std::string& what) {
  if (!complete() || draining() || outcome_) return;
  if (closed_) return end_run(false, who, what + "; the run is closed, so nobody can restart");
  restart_cause_ = {who, what};
  if (cause == RestartCause::NodeLost) unseen_.fall_silent();
  awaited_.clear();
  for (Member* member : members_.list(Place::Participant)) {
    if (!member->native) {
      // A torchrun node restarts when it sees a node on the wait list. In its exit barrier it does
      // not read the state any more.
      if (member->waits == StoreWait::AtExit) release_from_exit_barrier(*member);
      continue;
    }
    members_.set_place(*member, member->succeeded ? Place::Finished : Place::Restarting);
    member->restarted_round = round_;
    if (!member->succeeded && member->connection)
      actions_.push_back(
          RestartRound{*member->connection, round_, cause, who, what, setup_.life, restarts_used_});
  }
  // torchrun nodes restart only if a node waits; otherwise their round goes on.
  move_to(expected() > members_.counts().torch_redundant ? Phase::Draining : Phase::Running);
  changed();
}

/// For a torchrun node that has finished: removes it, because the next round goes on without it.
void Rendezvous::release_from_exit_barrier(Member& member) {
  if (member.connection) actions_.push_back(ReleaseFromExitBarrier{*member.connection});
  remove(member);
}

void Rendezvous::next_round() {
  unseen_.end_round(now_);
  ++round_;
  move_to(Phase::Gathering);
  store_.reset();
  workers_.clear();
  deadline_.reset();
  torchrun_.reset_deadline();
  changed();
}

void Rendezvous::end_run(bool succeeded, std::optional<NodeName> who, const std::string& why) {
  if (outcome_) return;
  outcome_ = RunEnded{{}, succeeded, std::move(who), why};
  closed_ = true;
  if (preparing()) move_to(Phase::Running);  // No node will be told its rank.
  deadline_.reset();
  torchrun_.reset_deadline();
  spares_step_in_.reset();
  for (auto& [id, member] : members_) {
    members_.set_join_deadline(member, std::nullopt);
    if (!member.instance.empty()) at_the_end_.insert(member.instance);
    members_.mark_unrecorded(member.name);
    if (!member.connection) continue;
    if (member.waits == StoreWait::AtExit)
      actions_.push_back(ReleaseFromExitBarrier{*member.connection});
    if (!member.native) continue;
    RunEnded message = *outcome_;
    message.to = *member.connection;
    actions_.push_back(std::move(message));
  }
  changed();
}

void Rendezvous::end_if_finished() {
  if (!complete() || draining() || outcome_ || members_.counts().natives == 0 ||
      members_.count(Place::Participant) == 0)
    return;
  if (members_.counts().working > 0) return;
  end_run(true, std::nullopt, "every node has finished");
}

/// Nodes that have finished will not come back, so a further round needs enough other members. The
/// run does not wait for newcomers then: it does not know of any. But just after a restart of the
/// host this machine may not know yet of nodes and spares that are on their way back.
void Rendezvous::end_if_hopeless() {
  if (members_.counts().succeeded == 0 || outcome_ || !run_ || (complete() && !draining())) return;
  if (recovery_ || returns_) return;
  const std::size_t left = members_.size() - members_.counts().succeeded;
  if (left >= static_cast<std::size_t>(run_->min_nodes)) return;
  if (left == 0 && lost_.empty() && never_back_ == 0)
    return end_run(true, std::nullopt, "every node has finished");
  std::string why = std::to_string(members_.counts().succeeded) +
                    (members_.counts().succeeded == 1 ? " node has" : " nodes have") +
                    " finished, and " + (left == 0 ? "none" : std::to_string(left)) +
                    (left > 1 ? " are" : " is") + " left to go on: --nnodes asks for at least " +
                    std::to_string(run_->min_nodes);
  if (!lost_.empty()) {
    const LostNode& first = lost_.front();
    return end_run(false, first.name,
                   "gone before its part was finished (rank " + std::to_string(first.rank) + ": " +
                       first.why + "); " + why);
  }
  if (never_back_ > 0)
    why = std::to_string(never_back_) + " of the " + std::to_string(last_world_) +
          " nodes have not come back after the rendezvous had been away; " + why;
  if (!restart_cause_) return end_run(false, std::nullopt, why);
  end_run(false, restart_cause_->first, restart_cause_->second + "; " + why);
}

}  // namespace muster

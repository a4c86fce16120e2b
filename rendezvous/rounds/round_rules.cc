#include "rendezvous/rounds/round_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/notices.h"
#include "rendezvous/rounds/operator_requests.h"
#include "rendezvous/rounds/round_ranks.h"

namespace muster {

void RoundRules::apply_rules() {
  if (run_.returns.cancelled && run_.returns.cancelled->until <= run_.now) {
    run_.returns.never_back = run_.returns.missing();
    run_.returns.cancelled.reset();
    run_.changed();
  }
  while (!run_.ending.outcome &&
         (run_.complete() ? apply_rules_to_complete_round() : apply_rules_while_gathering())) {
  }
  end_if_hopeless();
}

bool RoundRules::apply_rules_to_complete_round() {
  if (run_.members.count(Place::Participant) == 0) {
    next_round();
    return true;
  }
  // All nodes that waited for the torchrun nodes to restart are gone: the torchrun nodes go on.
  if (run_.draining() && run_.expected() <= run_.members.counts().torch_redundant) {
    run_.move_to(RunPhase::Running);
    run_.changed();
  }
  if (OperatorRequests(run_).restart_without_excluded()) return true;
  if (Notices(run_).apply_to_complete_round()) return true;
  // Newcomers restart the others only if the scale policy allows it, and never after a node has
  // finished. A round with a notice ends soon: its workers get the time to save.
  if (run_.round.notice || run_.draining() || run_.ending.closed || !run_.settings ||
      run_.settings->scale_policy != ScalePolicy::Now || run_.members.counts().succeeded > 0)
    return false;
  if (static_cast<int>(run_.members.count(Place::Participant)) >= run_.settings->max_nodes)
    return false;
  Member* newcomer = first_native(Place::Redundant);
  if (newcomer == nullptr) return false;
  newcomer->ended_a_round = true;
  run_.members.set_place(*newcomer, Place::Waiting);
  run_.members.set_join_deadline(*newcomer, later(run_.now, run_.known_settings().join_timeout));
  begin_restart(RestartCause::NodeJoined, newcomer->name, "it wants to join");
  return true;
}

bool RoundRules::apply_rules_while_gathering() {
  if (!run_.settings || run_.ending.closed)
    return false;                   // Only torchrun nodes: they follow their own rules.
  if (run_.recovery) return false;  // The resuming nodes may already have a round.
  if (Notices(run_).apply_while_gathering()) return true;
  if (MemberWatch(run_).let_in_if_needed() || admit_one() || admit_spare()) return true;
  const bool enough =
      static_cast<int>(run_.members.count(Place::Participant)) >= run_.settings->min_nodes;
  if (enough && !run_.last_call.end) {
    const Duration whole = run_.settings->last_call_timeout;
    run_.last_call.begin(later(run_.now, std::min(whole, run_.last_call.restored.value_or(whole))));
    run_.last_call.restored.reset();
    run_.changed();
  } else if (!enough && (run_.last_call.end || run_.last_call.proposed)) {
    run_.last_call.clear();
    run_.changed();
  }
  if (!may_complete()) return false;
  complete_round();
  return true;
}

Member* RoundRules::first_native(Place where) {
  return run_.members.first_in(where, [](const Member& member) { return member.native; });
}

bool RoundRules::admit(Member& member) {
  if (!member.join_deadline)
    run_.members.set_join_deadline(member, later(run_.now, run_.known_settings().join_timeout));
  run_.members.set_place(member, Place::Participant);
  return true;
}

bool RoundRules::admit_one() {
  const auto taken = run_.members.count(Place::Participant);
  if (Member* back = first_native(Place::Waiting)) {
    if (taken < static_cast<std::size_t>(run_.known_settings().max_nodes)) return admit(*back);
    run_.members.set_place(*back, Place::Redundant);
    run_.members.set_join_deadline(*back, std::nullopt);
    return true;
  }
  Member* newcomer = first_native(Place::Redundant);
  if (newcomer == nullptr) return false;
  const bool only_replaces =
      !run_.first_round() && run_.known_settings().scale_policy == ScalePolicy::Never;
  const auto limit =
      only_replaces ? spare_target() : static_cast<std::size_t>(run_.known_settings().max_nodes);
  // Places are reserved for nodes that are about to come back, until the last call is over.
  const bool over = run_.last_call.end && *run_.last_call.end <= run_.now;
  return taken + (over ? 0 : run_.expected()) < limit && admit(*newcomer);
}

bool RoundRules::admit_spare() {
  const auto taken = run_.members.count(Place::Participant);
  Member* spare = first_native(Place::Standby);
  if (!run_.first_round())
    return spare != nullptr && taken + run_.expected() < spare_target() && admit(*spare);
  const bool wanted =
      spare != nullptr && taken < static_cast<std::size_t>(run_.known_settings().min_nodes);
  // A first round that had enough nodes has lost some of them.
  if (wanted && !run_.last_call.spares_step_in)
    run_.last_call.spares_step_in = later(run_.now, run_.known_settings().last_call_timeout);
  if (!run_.last_call.spares_step_in || *run_.last_call.spares_step_in > run_.now) return false;
  if (wanted) return admit(*spare);
  run_.last_call.spares_step_in.reset();
  return false;
}

/// Nodes that only replace others are admitted up to this number of participants.
std::size_t RoundRules::spare_target() const {
  const auto least =
      std::max(static_cast<std::size_t>(run_.known_settings().min_nodes), run_.round.world);
  return std::min(least, static_cast<std::size_t>(run_.known_settings().max_nodes));
}

bool RoundRules::may_complete() const {
  const auto taken = static_cast<int>(run_.members.count(Place::Participant));
  if (taken < run_.known_settings().min_nodes || run_.is_held_up()) return false;
  if (taken >= run_.known_settings().max_nodes ||
      (run_.last_call.end && *run_.last_call.end <= run_.now))
    return true;
  if (run_.first_round() || run_.expected() > 0) return false;
  // A restart: every node that is still alive has come back, so there is no node to wait for.
  return run_.members.counts().returned > 0;
}

void RoundRules::complete_round() {
  const std::vector<Member*> members = run_.members.list(Place::Participant);
  std::vector<RankCandidate> candidates;
  candidates.reserve(members.size());
  for (const Member* member : members)
    candidates.push_back({.name = member->name,
                          .native = member->native,
                          .hosts_rendezvous = member->hosts_rendezvous,
                          .preferred = member->preferred_rank,
                          .last_rank = member->last_rank});
  if (members.empty()) return run_.violate("a round is complete that has no members");
  for (auto& [id, member] : run_.members) {
    run_.members.set_last_rank(member, std::nullopt);
    run_.members.mark_unrecorded(member.name);
  }
  for (const LostNode& node : run_.round.lost)
    run_.members.mark_unrecorded(node.name);
  std::vector<const Member*> by_rank;
  for (const std::size_t index : assign_group_ranks(candidates)) {
    Member* member = members[index];
    member->rank = static_cast<int>(by_rank.size());
    run_.members.set_last_rank(*member, member->rank);
    run_.members.set_join_deadline(*member, std::nullopt);
    by_rank.push_back(member);
  }
  for (Member* member : run_.members.list(Place::Restarting))
    run_.members.set_place(*member, Place::LeftOut);
  if (run_.settings && members.size() >= static_cast<std::size_t>(run_.settings->max_nodes))
    move_waiting_to_redundancy_list();
  run_.unseen.clear();
  run_.returns.cancelled.reset();
  run_.move_to(RunPhase::Preparing);
  run_.round.may_be_complete = false;
  run_.round.had_one = true;
  run_.returns.never_back = 0;
  run_.round.generation = ++run_.generations.highest;
  run_.restarts.uncounted = run_.round.generation;
  run_.returns.restored_generation.reset();
  run_.returns.awaited.clear();
  run_.restarts.cause.reset();
  run_.restarts.wait_until.reset();
  run_.round.world = by_rank.size();
  run_.round.lease = run_.setup.lease;
  run_.round.lost.clear();
  run_.last_call.clear();
  run_.last_call.spares_step_in.reset();
  Notices(run_).begin_round();
  run_.changed();
  number_workers(by_rank);
  // A torchrun node at rank 0 makes the workers' store itself.
  if (by_rank.front()->native) return prepare_round();
  announce_round();
}

/// For a full round: torchrun nodes restart as long as a node is on the wait list, and a torchrun
/// node that is on it stays there.
void RoundRules::move_waiting_to_redundancy_list() {
  for (Member* member : run_.members.list(Place::Waiting)) {
    run_.members.set_place(*member, Place::Redundant);
    run_.members.set_join_deadline(*member, std::nullopt);
  }
}

void RoundRules::prepare_round() {
  const Member* first = run_.rank_0();
  if (first == nullptr) return run_.violate("a round is prepared that has no rank 0");
  run_.round.prepared_by.reset();
  if (!first->connection) return;  // Rank 0 gets the message when it comes back.
  run_.round.prepared_by = later(run_.now, run_.setup.prepare_within);
  run_.send(PrepareStore{*first->connection, run_.round.number});
}

/// Rank 0 cannot host the workers' store. It is removed, and the others meet in the next round. The
/// run ends if they are too few, or after kMaxPrepareTries such failures in a row.
void RoundRules::drop_rank_0(const NodeName& who, const std::string& what) {
  Member* first = run_.members.named(who);
  if (first == nullptr) return;
  ++run_.round.prepare_failures;
  const std::size_t left = run_.members.size() - run_.members.counts().succeeded - 1;
  if (run_.round.prepare_failures >= kMaxPrepareTries ||
      left < static_cast<std::size_t>(run_.known_settings().min_nodes))
    return end_run(false, who, what);
  MemberWatch(run_).lose(*first, RestartCause::NodeLost, what);
}

/// Assigns the ranks of all workers; none with a torchrun node, which writes its number of workers
/// only to the store.
void RoundRules::number_workers(const std::vector<const Member*>& by_rank) {
  std::vector<NodeWorkers> nodes;
  for (const Member* member : by_rank) {
    if (!member->native) return run_.round.workers.clear();
    nodes.push_back({member->role, member->local_world_size});
  }
  run_.round.workers = assign_worker_ranks(nodes);
}

void RoundRules::announce_round(const Member* knows_it) {
  run_.move_to(RunPhase::Running);
  run_.restarts.ledger.begin_attempt(run_.now);
  // With a torchrun node in the round (workers is empty), no node can ask rank 0 whether
  // the round is whole: the muster nodes are fenced.
  run_.unseen.begin(run_.round.number, run_.round.generation, run_.round.workers.size());
  run_.changed();
  std::vector<std::pair<const Member*, ConnectionId>> told;
  run_.members.for_each_in(Place::Participant, [&](const Member& member) {
    if (member.native && member.connection && &member != knows_it)
      told.emplace_back(&member, *member.connection);
  });
  std::sort(told.begin(), told.end(),
            [](const auto& a, const auto& b) { return a.first->rank < b.first->rank; });
  for (const auto& [member, connection] : told) {
    run_.send(announcement(*member, connection));
    if (run_.ending.closed) run_.send(RunClosed{connection});
  }
}

RoundComplete RoundRules::announcement(const Member& member, ConnectionId to) const {
  RoundComplete message{.to = to,
                        .round = run_.round.number,
                        .group_rank = {member.rank},
                        .group_world_size = static_cast<int>(run_.round.world),
                        .restart_count = run_.restarts.used,
                        .workers = std::nullopt,
                        .store = run_.round.store,
                        .life = run_.setup.life,
                        .generation = run_.round.generation,
                        .best_step = run_.restarts.ledger.costs().best_step};
  const auto rank = static_cast<std::size_t>(member.rank);
  if (rank < run_.round.workers.size())
    message.workers = run_.round.workers[rank];
  else if (!run_.round.workers.empty())
    run_.violate("a member of the round has a rank beyond its size");
  return message;
}

void RoundRules::begin_restart(RestartCause cause, const NodeName& who, const std::string& what) {
  if (!run_.complete() || run_.draining() || run_.ending.outcome) return;
  if (run_.ending.closed)
    return end_run(false, who, what + "; the run is closed, so nobody can restart");
  run_.restarts.cause = {who, what};
  run_.round.drop_notice();
  if (cause == RestartCause::NodeLost) run_.unseen.fall_silent();
  run_.returns.awaited.clear();
  for (Member* member : run_.members.list(Place::Participant)) {
    if (!member->native) {
      // A torchrun node restarts when it sees a node on the wait list. In its exit barrier it does
      // not read the state any more.
      if (member->waits == StoreWait::AtExit) release_from_exit_barrier(*member);
      continue;
    }
    run_.members.set_place(*member, member->succeeded ? Place::Finished : Place::Restarting);
    member->restarted_round = run_.round.number;
    if (!member->succeeded && member->connection)
      run_.send(RestartRound{*member->connection, run_.round.number, cause, who, what,
                             run_.setup.life, run_.restarts.used});
  }
  // torchrun nodes restart only if a node waits; otherwise their round goes on.
  run_.move_to(run_.expected() > run_.members.counts().torch_redundant ? RunPhase::Draining
                                                                       : RunPhase::Running);
  run_.changed();
}

/// For a torchrun node that has finished: removes it, because the next round goes on without it.
void RoundRules::release_from_exit_barrier(Member& member) {
  if (member.connection) run_.send(ReleaseFromExitBarrier{*member.connection});
  MemberWatch(run_).remove(member);
}

void RoundRules::next_round() {
  run_.unseen.end_round(run_.now);
  ++run_.round.number;
  run_.move_to(RunPhase::Gathering);
  run_.round.store.reset();
  run_.round.workers.clear();
  run_.round.refusal.clear();
  run_.round.drop_notice();
  run_.last_call.clear();
  run_.changed();
}

void RoundRules::preempt_run(const std::string& why) {
  end_run(RunEnded{.to = {}, .succeeded = false, .who = {}, .why = why, .preempted = true});
}

void RoundRules::end_run(bool succeeded, std::optional<NodeName> who, const std::string& why) {
  end_run(RunEnded{{}, succeeded, std::move(who), why});
}

void RoundRules::end_run(RunEnded outcome) {
  if (run_.ending.outcome) return;
  run_.ending.outcome = std::move(outcome);
  run_.round.drop_notice();
  run_.ending.closed = true;
  if (run_.preparing()) run_.move_to(RunPhase::Running);  // No node will be told its rank.
  run_.last_call.clear();
  run_.last_call.spares_step_in.reset();
  for (auto& [id, member] : run_.members) {
    run_.members.set_join_deadline(member, std::nullopt);
    if (!member.instance.empty()) run_.ending.instances.insert(member.instance);
    run_.members.mark_unrecorded(member.name);
  }
  tell_outcome_to_all();
  run_.changed();
}

void RoundRules::tell_outcome_to_all() {
  for (const auto& [id, member] : run_.members) {
    if (!member.connection) continue;
    if (member.waits == StoreWait::AtExit) run_.send(ReleaseFromExitBarrier{*member.connection});
    if (member.native) run_.send_outcome(*member.connection);
  }
}

void RoundRules::abandon(std::string_view invariant) {
  run_.actions.clear();
  run_.ending.outcome =
      RunEnded{{}, false, std::nullopt, "the host's record of this run is broken: "};
  run_.ending.outcome->why += invariant;
  tell_outcome_to_all();
  run_.members.clear();  // A run without members breaks no invariant.
  run_.recovery.reset();
  run_.round.workers.clear();
  run_.ending.closed = true;
  run_.round.phase = RunPhase::Gathering;
  run_.last_call.clear();
  run_.last_call.spares_step_in.reset();
  run_.changed();
}

void RoundRules::end_if_finished() {
  if (!run_.complete() || run_.draining() || run_.ending.outcome ||
      run_.members.counts().natives == 0 || run_.members.count(Place::Participant) == 0)
    return;
  if (run_.members.counts().working > 0) return;
  end_run(true, std::nullopt, "every node has finished");
}

/// Nodes that have finished will not come back, so a further round needs enough other members. The
/// run does not wait for newcomers then: it does not know of any. But just after a restart of the
/// host this machine may not know yet of nodes and spares that are on their way back.
void RoundRules::end_if_hopeless() {
  if (run_.members.counts().succeeded == 0 || run_.ending.outcome || !run_.settings ||
      (run_.complete() && !run_.draining()))
    return;
  if (run_.recovery || run_.returns.cancelled) return;
  const std::size_t left = run_.members.size() - run_.members.counts().succeeded;
  if (left >= static_cast<std::size_t>(run_.settings->min_nodes)) return;
  if (left == 0 && run_.round.lost.empty() && run_.returns.never_back == 0)
    return end_run(true, std::nullopt, "every node has finished");
  std::string why = std::to_string(run_.members.counts().succeeded) +
                    (run_.members.counts().succeeded == 1 ? " node has" : " nodes have") +
                    " finished, and " + (left == 0 ? "none" : std::to_string(left)) +
                    (left > 1 ? " are" : " is") + " left to go on: --nnodes asks for at least " +
                    std::to_string(run_.settings->min_nodes);
  if (!run_.round.lost.empty()) {
    const LostNode& first = run_.round.lost.front();
    return end_run(false, first.name,
                   "gone before its part was finished (rank " + std::to_string(first.rank) + ": " +
                       first.why + "); " + why);
  }
  if (run_.returns.never_back > 0)
    why = std::to_string(run_.returns.never_back) + " of the " + std::to_string(run_.round.world) +
          " nodes have not come back after the rendezvous had been away; " + why;
  if (!run_.restarts.cause) return end_run(false, std::nullopt, why);
  end_run(false, run_.restarts.cause->first, run_.restarts.cause->second + "; " + why);
}

void RoundRules::fail_round(const Member& member, const WorkersFailed& failed) {
  // Several nodes may fail for the same cause: a restart that has begun is not counted again.
  if (!run_.complete() || run_.draining() || member.place != Place::Participant) return;
  const NodeName who = member.name;
  run_.conduct.strikes.count_failure(who.addr);
  run_.restarts.uncounted.reset();
  const AttemptEnd end = failed.hung ? AttemptEnd::Hang : AttemptEnd::Failure;
  if (!charge(end, who, failed.what)) return;
  run_.unseen.clear();
  begin_restart(RestartCause::WorkersFailed, who, failed.what);
}

void RoundRules::lose_node(RestartCause cause, const NodeName& who, const std::string& what) {
  // In the other phases no worker runs, or a restart has begun already.
  const bool ends_attempt = run_.round.phase == RunPhase::Running && !run_.ending.outcome;
  if (ends_attempt && !charge(AttemptEnd::Node, who, what)) return;
  begin_restart(cause, who, what);
}

bool RoundRules::charge(AttemptEnd end, const NodeName& who, const std::string& what) {
  auto outcome = try_to_charge(end, who, what);
  if (!outcome) return true;
  end_run(*std::move(outcome));
  return false;
}

std::optional<RunEnded> RoundRules::try_to_charge(AttemptEnd end, const NodeName& who,
                                                  const std::string& what) {
  const RestartBudgets budgets = restart_budgets(run_.settings.value_or(RunSettings{}));
  const auto decision = run_.restarts.ledger.end_attempt(
      {.how = end, .now = run_.now, .all_tell = all_tell_progress()}, budgets);
  run_.changed();
  if (decision.restarts) {
    if (end != AttemptEnd::Node) ++run_.restarts.used;
    if (decision.wait > Duration::zero()) run_.restarts.wait_until = later(run_.now, decision.wait);
    return std::nullopt;
  }
  const int attempts = run_.restarts.ledger.costs().without_progress;
  std::string why = decision.hopeless ? what : used_up_text(what, end, budgets, run_.restarts.used);
  if (const std::string advice = no_progress_text(attempts); !advice.empty()) why += "; " + advice;
  return RunEnded{.to = {},
                  .succeeded = false,
                  .who = who,
                  .why = std::move(why),
                  .preempted = false,
                  .without_progress = attempts,
                  .hopeless = decision.hopeless};
}

/// Whether all nodes of the newest round tell the host of their workers' progress.
bool RoundRules::all_tell_progress() const {
  for (const auto& [id, member] : run_.members)
    if (member.last_rank && !(member.native && member.tells_progress)) return false;
  return true;
}

/// Rank 0 is alive, but it has not reported the address of the workers' store in time.
void RoundRules::prepare_deadline() {
  if (run_.phase() != RunPhase::Preparing || !run_.round.prepared_by ||
      *run_.round.prepared_by > run_.now)
    return;
  const Member* first = run_.rank_0();
  if (first == nullptr) return run_.violate("a round is prepared that has no rank 0");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(run_.setup.prepare_within);
  const std::string why =
      "the workers' store was not ready within " + std::to_string(seconds.count()) + " s";
  if (first->connection) run_.send(NotAMember{*first->connection, why});
  drop_rank_0(NodeName(first->name), why);
}

/// A node may know more restarts than this host: an earlier host may have been killed after it had
/// announced a restart and before it could record it.
void RoundRules::raise_restart_count(int reported) {
  const RestartBudgets budgets = restart_budgets(run_.known_settings());
  const int most = budgets.failures + budgets.policy.hangs.value_or(0);
  reported = std::min(reported, most);
  if (reported <= run_.restarts.used) return;
  run_.restarts.ledger.charge_failures(reported - run_.restarts.used, budgets.failures);
  run_.restarts.used = reported;
  run_.restarts.uncounted.reset();  // The restart may be that of a failure of the newest round.
  run_.changed();
}

}  // namespace muster

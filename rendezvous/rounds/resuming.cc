#include "rendezvous/rounds/resuming.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/rounds/joins.h"
#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/node_messages.h"
#include "rendezvous/rounds/notices.h"
#include "rendezvous/rounds/restored_run.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {

void Resuming::on(const NodeResumed& event) {
  if (RestoredRun(run_).is_outdated_by(event)) RestoredRun(run_).discard_restored_round();
  NodeJoined join = event.join;
  join.from = event.from;
  join.name = Joins(run_).name_for(join);
  if (run_.ending.outcome) return run_.send_outcome(event.from);
  Member* member = run_.members.of_instance(join.instance);
  const bool takes_up = may_take_up(event);
  const bool is_silent = member != nullptr && member->place == Place::Restarting && takes_up;
  if (member != nullptr && member->place != Place::Resuming && !is_silent) {
    MemberWatch(run_).bind(*member, event.from);
    MemberWatch(run_).touch(*member);
    member->proxied = event.join.proxied;
    member->takes_notices = event.join.takes_notices;
    member->tells_progress = event.join.run.restart_policy.has_value();
    return resume_member(*member, event);
  }
  if (auto refusal = Joins(run_).refusal_of(join, is_of_recovery(event)))
    return run_.send(*std::move(refusal));
  if (may_recover(event) || takes_up) return recover(join, event);
  if (has_finished_elsewhere(event)) return take_as_finished(join, event);
  if (event.join.generation <= run_.setup.ended_generation)
    return end_resume(event, join.name,
                      "its run has ended, and another one of that name has begun");
  if (run_.complete())
    return end_resume(event, join.name, "the other nodes have gone on without this node");
  const auto lost = std::find_if(run_.round.lost.begin(), run_.round.lost.end(),
                                 [&](const LostNode& node) { return node.name == join.name; });
  end_resume(event, join.name,
             "its round has ended" + (lost == run_.round.lost.end()
                                          ? std::string()
                                          : ", and this node was lost: " + lost->why));
}

/// Whether the node has finished its part in the round that this host could not take up again.
bool Resuming::has_finished_elsewhere(const NodeResumed& event) const {
  return run_.returns.cancelled && event.state == NodeResumed::State::Finished &&
         event.join.generation > 0 && event.join.generation == run_.returns.cancelled->generation &&
         event.group_rank >= 0 &&
         static_cast<std::size_t>(event.group_rank) < run_.returns.cancelled->world;
}

void Resuming::take_as_finished(const NodeJoined& join, const NodeResumed& event) {
  Member& member = Joins(run_).register_member(join);
  run_.members.set_last_rank(member, event.group_rank);
  run_.members.set_succeeded(member, true);
  run_.members.set_place(member, Place::Finished);
  run_.unseen.clear();
  note_return(join);
  run_.send(Resumed{event.from, event.join.last_round, event.join.generation, run_.setup.life});
}

void Resuming::resume_member(const Member& member, const NodeResumed& event) {
  using State = NodeResumed::State;
  const Resumed resumed{event.from, event.join.last_round, event.join.generation, run_.setup.life};
  if (member.succeeded) return run_.send(resumed);
  const bool in_round = run_.complete() && member.place == Place::Participant &&
                        event.join.last_round == run_.round.number &&
                        event.join.generation == run_.round.generation;
  if (in_round && run_.round.may_be_complete && run_.preparing() && event.store) {
    // The earlier host told this node its rank, so the store is ready: tell the other nodes theirs.
    run_.round.store = event.store;
    run_.round.prepare_failures = 0;
    RoundRules(run_).announce_round(&member);
  }
  const bool left = member.place == Place::Restarting || member.place == Place::LeftOut;
  note_progress(event);
  if (event.state == State::Finished && (in_round || left)) {
    run_.send(resumed);
    return NodeMessages(run_).on(NodeFinished{event.from, event.join.last_round, true, {}});
  }
  if (in_round && event.state == State::Stopped && event.failure.empty())
    return RoundRules(run_).begin_restart(RestartCause::NodeLost, NodeName(member.name),
                                          "it was cut off, and has stopped its workers");
  // Not left to the node's WorkersFailed: another node may end the round before that comes.
  if (in_round && event.state == State::Stopped)
    return RoundRules(run_).fail_round(
        member, {event.from, event.join.last_round, event.failure, event.hung});
  if (in_round) {
    run_.send(resumed);
    return RestoredRun(run_).handle_return(member);
  }
  const std::string cause = run_.restarts.cause ? " (" + to_string(run_.restarts.cause->first) +
                                                      ": " + run_.restarts.cause->second + ")"
                                                : std::string();
  end_resume(event, NodeName(member.name), "the round has ended" + cause);
}

void Resuming::note_progress(const NodeResumed& event) {
  if (event.join.generation != run_.round.generation) return;
  if (event.progressed || event.step)
    NodeMessages(run_).note_progress(event.join.last_round, event.step);
}

/// The round is over for the node. A failure that it reports may cost a restart nevertheless.
void Resuming::end_resume(const NodeResumed& event, const NodeName& who, std::string why) {
  count_late_failure(event, who);
  if (!run_.ending.outcome) return send_rejoin(event.from, std::move(why));
  if (run_.members.from(event.from) != nullptr) return;  // A member was told when the run ended.
  run_.send_outcome(event.from);
}

/// Counts a failure of a round that has ended for another reason, for example because a node that
/// had stopped its workers joined first: the order in which nodes come back must not decide what a
/// failure costs. When the next round has begun, the failure costs nothing, as a lost node does.
void Resuming::count_late_failure(const NodeResumed& event, const NodeName& who) {
  if (event.state != NodeResumed::State::Stopped || event.failure.empty() || run_.ending.outcome)
    return;
  if (run_.restarts.uncounted != event.join.generation) return;
  run_.restarts.uncounted.reset();
  run_.conduct.strikes.count_failure(who.addr);
  run_.restarts.cause = {who, event.failure};
  const AttemptEnd end = event.hung ? AttemptEnd::Hang : AttemptEnd::Failure;
  if (!RoundRules(run_).charge(end, who, event.failure)) return;
  run_.send(FailureCounted{who, event.join.last_round, event.failure});
}

void Resuming::send_rejoin(ConnectionId to, std::string why) {
  Member* member = run_.members.from(to);
  if (member != nullptr) member->rejoins = to;
  const std::int64_t round = member == nullptr ? -1 : member->restarted_round;
  run_.send(Rejoin{to, round, run_.setup.life, std::move(why), run_.restarts.used});
}

/// Whether this host may adopt the node's round: only if it has not made a round itself.
bool Resuming::may_recover(const NodeResumed& event) const {
  return !run_.round.had_one && !run_.complete() && event.join.life != run_.setup.life &&
         event.join.last_round >= 0 && run_.is_credible(event.join.last_round) &&
         event.join.generation > run_.setup.ended_generation &&
         run_.is_credible(event.join.generation) && !event.join.instance.empty() &&
         event.group_rank >= 0 && event.group_rank < event.group_world_size &&
         static_cast<std::size_t>(event.group_world_size) <= kMaxMembers;
}

/// Whether the round that the node is in may go on, although this host has ended it: it has lost
/// nodes by silence, nobody who has heard of the end is connected, and no other round has begun.
/// recover() waits for all of them. Those whose workers have stopped join instead, which cancels
/// that.
bool Resuming::may_take_up(const NodeResumed& event) const {
  const bool works = event.state == NodeResumed::State::Running || run_.recovery;
  const bool somebody_knows = run_.members.first_in(Place::Restarting, [](const Member& member) {
    return member.connection;
  }) != nullptr;
  return works && !somebody_knows && run_.members.counts().succeeded == 0 &&
         run_.unseen.fell_silent() && !run_.complete() &&
         event.join.generation == run_.unseen.generation() &&
         event.join.last_round == run_.unseen.round() && !event.join.instance.empty() &&
         event.group_rank >= 0 && event.group_rank < event.group_world_size &&
         static_cast<std::size_t>(event.group_world_size) == run_.round.world;
}

void Resuming::recover(const NodeJoined& join, const NodeResumed& event) {
  using State = NodeResumed::State;
  if (run_.recovery && !is_of_recovery(event)) {
    if (event.join.generation <= run_.recovery->generation())
      return send_rejoin(event.from, "other nodes know of a newer round");
    cancel_recovery("node " + to_string(join.name) + " knows of a newer one");
    if (event.restart_count >= run_.restarts.used) run_.restarts.uncounted = event.join.generation;
    return end_resume(event, join.name, "other nodes know of another round");
  }
  if (!run_.recovery) {
    run_.move_to(RunPhase::Recovering);
    run_.recovery.emplace(event, run_.setup.lease, run_.now);
  }
  Recovery& recovery = *run_.recovery;
  recovery.extend(event.join.lease, run_.now);
  const Member* same = run_.members.of_instance(join.instance);
  if (recovery.is_taken(event.group_rank, same ? std::optional(same->id) : std::nullopt))
    return send_rejoin(event.from, "another node has this node's rank");
  Member& member = Joins(run_).register_member(join);
  run_.members.set_last_rank(member, event.group_rank);
  if (event.state == State::Finished) run_.members.set_succeeded(member, true);
  run_.members.set_place(member, Place::Resuming);
  recovery.add(member.id, member.name, event);
  if (event.state == State::Stopped && event.failure.empty()) {
    cancel_recovery("node " + to_string(member.name) + " has stopped its workers");
    return run_.unseen.clear();
  }
  if (recovery.is_whole()) finish_recovery();
}

void Resuming::time_passed() {
  if (run_.recovery && run_.recovery->deadline() <= run_.now) finish_recovery();
}

bool Resuming::is_of_recovery(const NodeResumed& event) const {
  return run_.recovery && run_.recovery->is_of(event);
}

/// Ends the recovery: every node of the round is back, or the time for that is over.
void Resuming::finish_recovery() {
  if (!run_.recovery) return;
  if (!run_.recovery->is_whole())
    return cancel_recovery("these ranks have not come back in time:" +
                           run_.recovery->missing_ranks());
  if (run_.members.first_in(Place::Participant,
                            [](const Member& member) { return !member.native; }) != nullptr)
    return cancel_recovery("torchrun nodes have begun another round");
  if (run_.generations.reported != run_.recovery->generation())
    return cancel_recovery("a node knows of a newer one");
  adopt_round();
}

/// Whether an earlier host has counted a failure of the round already: then a node knows of more
/// restarts than the round began with.
bool Resuming::adopt_restart_count(const Recovery& recovery) {
  const bool is_counted = run_.restarts.used > recovery.restart_count();
  RoundRules(run_).raise_restart_count(recovery.restart_count());
  if (!is_counted) run_.restarts.uncounted = recovery.generation();
  return is_counted;
}

/// What the workers of the round have told their nodes. Another host has seen the round begin.
void Resuming::adopt_progress(const Recovery& recovery) {
  RestartLedger& ledger = run_.restarts.ledger;
  ledger.adopt_attempt();
  if (const std::optional<std::int64_t>& step = recovery.step()) ledger.note_step(*step);
  if (recovery.progressed()) ledger.progressed();
}

void Resuming::adopt_round() {
  if (!run_.recovery) return;
  const Recovery recovery = std::move(*run_.recovery);
  run_.recovery.reset();
  // Nodes that joined meanwhile wait like newcomers.
  for (Member* newcomer : run_.members.list(Place::Participant)) {
    run_.members.set_join_deadline(*newcomer, std::nullopt);
    run_.members.set_place(*newcomer, newcomer->spare ? Place::Standby : Place::Redundant);
  }
  run_.round.number = recovery.round();
  run_.round.generation = recovery.generation();
  run_.unseen.begin(run_.round.number, run_.round.generation, recovery.nodes().size());
  run_.move_to(RunPhase::Running);
  run_.round.had_one = true;
  const bool is_counted = adopt_restart_count(recovery);
  adopt_progress(recovery);
  run_.round.world = recovery.nodes().size();
  run_.round.lease = recovery.lease();
  run_.conduct.excluded_may_work = true;
  run_.round.store = recovery.store();
  run_.restarts.cause.reset();
  for (const LostNode& node : std::exchange(run_.round.lost, {}))  // They are back.
    run_.members.mark_unrecorded(node.name);
  run_.round.workers.clear();
  run_.last_call.clear();
  run_.last_call.spares_step_in.reset();
  bool numbered = true;
  for (const auto& [rank, node] : recovery.nodes()) {
    Member* member = run_.members.known(node.id);
    if (member == nullptr) return;
    member->rank = rank;
    run_.members.set_place(*member, Place::Participant);
    numbered = numbered && node.workers;
    if (numbered) run_.round.workers.push_back(*node.workers);
    if (member->connection)
      run_.send(
          Resumed{*member->connection, run_.round.number, run_.round.generation, run_.setup.life});
    if (member->connection && run_.ending.closed) run_.send(RunClosed{*member->connection});
  }
  if (!numbered) run_.round.workers.clear();
  Notices(run_).begin_round();
  run_.changed();
  run_.send(RoundRecovered{true, run_.round.number, run_.round.generation, {}});
  RoundRules(run_).end_if_finished();
  const std::optional<Recovery::Failure>& failure = recovery.failure();
  if (!failure) return;
  const auto& [who, what, hung] = *failure;
  if (is_counted) return RoundRules(run_).begin_restart(RestartCause::WorkersFailed, who, what);
  if (const Member* failed = run_.members.named(who))
    RoundRules(run_).fail_round(*failed, {{}, recovery.round(), what, hung});
}

void Resuming::cancel_recovery(const std::string& why) {
  if (!run_.recovery) return;
  const Recovery recovery = std::move(*run_.recovery);
  run_.recovery.reset();
  run_.move_to(RunPhase::Gathering);
  run_.send(RoundRecovered{false, recovery.round(), recovery.generation(), why});
  run_.unseen.begin(recovery.round(), recovery.generation(), recovery.world());
  if (recovery.failure() || run_.members.counts().succeeded > 0) run_.unseen.clear();
  run_.unseen.end_round(run_.now);
  // Round numbers go on after the number of the cancelled round.
  run_.round.number = std::max(run_.round.number, recovery.round() + 1);
  run_.round.had_one = true;
  run_.last_call.spares_step_in.reset();
  run_.round.world = recovery.world();
  run_.returns.cancelled =
      Returns::Cancelled{recovery.deadline(), recovery.generation(), run_.round.world, {}};
  for (const auto& [rank, node] : recovery.nodes())
    if (const Member* member = run_.members.known(node.id))
      run_.returns.cancelled->back.insert(member->instance);
  auto fatal = count_lost_failure(recovery);
  for (Member* resuming : run_.members.list(Place::Resuming)) {
    Member& member = *resuming;
    run_.members.set_place(member, member.succeeded ? Place::Finished : Place::Restarting);
    member.restarted_round = recovery.round();
    if (!member.connection) continue;
    if (member.succeeded)
      run_.send(
          Resumed{*member.connection, recovery.round(), recovery.generation(), run_.setup.life});
    else
      send_rejoin(*member.connection, "round " + std::to_string(recovery.round()) +
                                          " could not go on after the rendezvous had been "
                                          "away: " +
                                          why);
  }
  run_.changed();
  if (fatal) return RoundRules(run_).end_run(*std::move(fatal));
  if (run_.ending.closed)
    RoundRules(run_).end_run(false, std::nullopt,
                             why + "; the run is closed, so nobody can restart");
}

/// The node may be one of the cancelled round.
void Resuming::note_return(const NodeJoined& event) {
  if (!run_.returns.cancelled || event.generation == 0 ||
      event.generation < run_.returns.cancelled->generation)
    return;
  run_.returns.cancelled->back.insert(event.instance);
  run_.changed();
}

/// Counts a restart for a failure that a node of the cancelled round had while it could not reach
/// the host. Returns the outcome of the run if no restart is left for it.
std::optional<RunEnded> Resuming::count_lost_failure(const Recovery& recovery) {
  const bool is_counted = adopt_restart_count(recovery);
  const std::optional<Recovery::Failure>& failure = recovery.failure();
  if (!failure) return std::nullopt;  // Another node of the round may still report one.
  run_.restarts.uncounted.reset();
  const auto& [who, what, hung] = *failure;
  run_.conduct.strikes.count_failure(who.addr);
  run_.restarts.cause = {who, what};
  if (is_counted) return std::nullopt;
  adopt_progress(recovery);
  const AttemptEnd end = hung ? AttemptEnd::Hang : AttemptEnd::Failure;
  if (auto outcome = RoundRules(run_).try_to_charge(end, who, what)) return outcome;
  run_.send(FailureCounted{who, recovery.round(), what});
  return std::nullopt;
}

}  // namespace muster

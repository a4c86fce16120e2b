// Nodes that resume: on a new connection, and after the host was restarted without a record.
//
// A host that was restarted does not know its rounds, but the nodes do. If every node of a round
// resumes, each with its own rank, the host adopts the round as it was. docs/rendezvous_rules.md.

#include <algorithm>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {
namespace {

// A node must not hold up a run by a lease that nobody has.
constexpr Duration kMaxReportedLease = std::chrono::hours(1);
// How long nodes of a round may go on coming back one after the other.
constexpr Duration kMaxRecovery = std::chrono::minutes(2);
constexpr std::size_t kRanksShown = 8;

}  // namespace

void Rendezvous::on(const NodeResumed& event) {
  if (is_outdated_by(event)) discard_restored_round();
  NodeJoined join = event.join;
  join.from = event.from;
  join.name = name_for(join);
  if (outcome_) {
    RunEnded message = *outcome_;
    message.to = event.from;
    return actions_.push_back(std::move(message));
  }
  Member* member = members_.of_instance(join.instance);
  const bool takes_up = may_take_up(event);
  const bool is_silent = member != nullptr && member->place == Place::Restarting && takes_up;
  if (member != nullptr && member->place != Place::Resuming && !is_silent) {
    bind(*member, event.from);
    touch(*member);
    member->proxied = event.join.proxied;
    return resume_member(*member, event);
  }
  if (auto refusal = refusal_of(join, same_recovery(event)))
    return actions_.push_back(*std::move(refusal));
  if (may_recover(event) || takes_up) return recover(join, event);
  if (has_finished_elsewhere(event)) return take_as_finished(join, event);
  if (event.join.generation <= setup_.ended_generation)
    return end_resume(event, join.name,
                      "its run has ended, and another one of that name has begun");
  if (complete())
    return end_resume(event, join.name, "the other nodes have gone on without this node");
  const auto lost = std::find_if(lost_.begin(), lost_.end(),
                                 [&](const LostNode& node) { return node.name == join.name; });
  end_resume(event, join.name,
             "its round has ended" +
                 (lost == lost_.end() ? std::string() : ", and this node was lost: " + lost->why));
}

/// Whether the node has finished its part in the round that this host could not take up again.
bool Rendezvous::has_finished_elsewhere(const NodeResumed& event) const {
  return returns_ && event.state == NodeResumed::State::Finished && event.join.generation > 0 &&
         event.join.generation == returns_->generation && event.group_rank >= 0 &&
         static_cast<std::size_t>(event.group_rank) < returns_->world;
}

void Rendezvous::take_as_finished(const NodeJoined& join, const NodeResumed& event) {
  Member* member = register_member(join);
  if (member == nullptr) return;
  members_.set_last_rank(*member, event.group_rank);
  members_.set_succeeded(*member, true);
  members_.set_place(*member, Place::Finished);
  unseen_.clear();
  note_return(join);
  actions_.push_back(
      Resumed{event.from, event.join.last_round, event.join.generation, setup_.life});
}

void Rendezvous::resume_member(const Member& member, const NodeResumed& event) {
  using State = NodeResumed::State;
  const Resumed resumed{event.from, event.join.last_round, event.join.generation, setup_.life};
  if (member.succeeded) return actions_.push_back(resumed);
  const bool in_round = complete() && member.place == Place::Participant &&
                        event.join.last_round == round_ && event.join.generation == generation_;
  if (in_round && may_be_complete_ && preparing() && event.store) {
    // The earlier host told this node its rank, so the store is ready: tell the other nodes theirs.
    store_ = event.store;
    prepare_failures_ = 0;
    announce_round(&member);
  }
  const bool left = member.place == Place::Restarting || member.place == Place::LeftOut;
  if (event.state == State::Finished && (in_round || left)) {
    actions_.push_back(resumed);
    return on(NodeFinished{event.from, event.join.last_round, true, {}});
  }
  if (in_round && event.state == State::Stopped && event.failure.empty())
    return begin_restart(RestartCause::NodeLost, NodeName(member.name),
                         "it was cut off, and has stopped its workers");
  // Not left to the node's WorkersFailed: another node may end the round before that comes.
  if (in_round && event.state == State::Stopped) return fail_round(member, event.failure);
  if (in_round) {
    actions_.push_back(resumed);
    return handle_return(member);
  }
  const std::string cause =
      restart_cause_ ? " (" + to_string(restart_cause_->first) + ": " + restart_cause_->second + ")"
                     : std::string();
  end_resume(event, NodeName(member.name), "the round has ended" + cause);
}

/// The round is over for the node. A failure that it reports may cost a restart nevertheless.
void Rendezvous::end_resume(const NodeResumed& event, const NodeName& who, std::string why) {
  count_late_failure(event, who);
  if (!outcome_) return send_rejoin(event.from, std::move(why));
  if (members_.from(event.from) != nullptr) return;  // A member was told when the run ended.
  RunEnded message = *outcome_;
  message.to = event.from;
  actions_.push_back(std::move(message));
}

/// Counts a failure of a round that has ended for another reason, for example because a node that
/// had stopped its workers joined first: the order in which nodes come back must not decide what a
/// failure costs. When the next round has begun, the failure costs nothing, as a lost node does.
void Rendezvous::count_late_failure(const NodeResumed& event, const NodeName& who) {
  if (event.state != NodeResumed::State::Stopped || event.failure.empty() || outcome_) return;
  if (uncounted_ != event.join.generation) return;
  uncounted_.reset();
  strikes_.count_failure(who.addr);
  restart_cause_ = {who, event.failure};
  changed();
  if (restarts_used_ >= run().max_restarts)
    return end_run(false, who, why_no_restart(event.failure));
  ++restarts_used_;
  actions_.push_back(FailureCounted{who, event.join.last_round, event.failure});
}

void Rendezvous::send_rejoin(ConnectionId to, std::string why) {
  Member* member = members_.from(to);
  if (member != nullptr) member->rejoins = to;
  const std::int64_t round = member == nullptr ? -1 : member->restarted_round;
  actions_.push_back(Rejoin{to, round, setup_.life, std::move(why), restarts_used_});
}

/// Whether this host may adopt the node's round: only if it has not made a round itself.
bool Rendezvous::may_recover(const NodeResumed& event) const {
  return !had_round_ && !complete() && event.join.life != setup_.life &&
         event.join.last_round >= 0 && is_credible(event.join.last_round) &&
         event.join.generation > setup_.ended_generation && is_credible(event.join.generation) &&
         !event.join.instance.empty() && event.group_rank >= 0 &&
         event.group_rank < event.group_world_size &&
         static_cast<std::size_t>(event.group_world_size) <= kMaxMembers;
}

/// Whether the round that the node is in may go on, although this host has ended it: it has lost
/// nodes by silence, nobody who has heard of the end is connected, and no other round has begun.
/// recover() waits for all of them. Those whose workers have stopped join instead, which cancels
/// that.
bool Rendezvous::may_take_up(const NodeResumed& event) const {
  const bool works = event.state == NodeResumed::State::Running || recovery_;
  const bool somebody_knows = members_.first_in(Place::Restarting, [](const Member& member) {
    return member.connection;
  }) != nullptr;
  return works && !somebody_knows && members_.counts().succeeded == 0 && unseen_.fell_silent() &&
         !complete() && event.join.generation == unseen_.generation() &&
         event.join.last_round == unseen_.round() && !event.join.instance.empty() &&
         event.group_rank >= 0 && event.group_rank < event.group_world_size &&
         static_cast<std::size_t>(event.group_world_size) == last_world_;
}

// Does not compare lives: a host that died while nodes resumed has sent its own life to some of
// them.
bool Rendezvous::same_recovery(const NodeResumed& event) const {
  return recovery_ && event.join.last_round == recovery_->round &&
         event.join.generation == recovery_->generation &&
         event.group_world_size == recovery_->world;
}

void Rendezvous::recover(const NodeJoined& join, const NodeResumed& event) {
  using State = NodeResumed::State;
  if (recovery_ && !same_recovery(event)) {
    if (event.join.generation <= recovery_->generation)
      return send_rejoin(event.from, "other nodes know of a newer round");
    cancel_recovery("node " + to_string(join.name) + " knows of a newer one");
    if (event.restart_count >= restarts_used_) uncounted_ = event.join.generation;
    return end_resume(event, join.name, "other nodes know of another round");
  }
  if (!recovery_) {
    move_to(Phase::Recovering);
    recovery_ = Recovery{.round = event.join.last_round,
                         .generation = event.join.generation,
                         .world = event.group_world_size,
                         .begun = now_,
                         .lease = setup_.lease};
  }
  // Nodes come back one after the other if this host needs time for each of them (TLS). So the time
  // for the others begins anew with each one, up to a limit.
  recovery_->lease = std::max(recovery_->lease, std::min(event.join.lease, kMaxReportedLease));
  recovery_->deadline = std::min(now_ + recovery_->lease + kReturnSlack,
                                 recovery_->begun + recovery_->lease + kMaxRecovery);
  const Member* same = members_.of_instance(join.instance);
  const auto holder = recovery_->by_rank.find(event.group_rank);
  const bool taken =
      holder != recovery_->by_rank.end() && (same == nullptr || same->id != holder->second.id);
  if (taken) return send_rejoin(event.from, "another node has this node's rank");
  Member* member = register_member(join);
  if (member == nullptr) return;
  members_.set_last_rank(*member, event.group_rank);
  if (event.state == State::Finished) members_.set_succeeded(*member, true);
  members_.set_place(*member, Place::Resuming);
  Recovery& recovery = *recovery_;
  // The node may have reported another rank before.
  std::erase_if(recovery.by_rank, [&](const auto& entry) { return entry.second.id == member->id; });
  recovery.by_rank[event.group_rank] = {member->id, event.workers};
  recovery.restart_count = std::max(recovery.restart_count, event.restart_count);
  if (event.group_rank == 0) recovery.store = event.store;
  if (event.state == State::Stopped && event.failure.empty()) {
    cancel_recovery("node " + to_string(member->name) + " has stopped its workers");
    return unseen_.clear();
  }
  if (!event.failure.empty() && !recovery.failure) recovery.failure = {member->name, event.failure};
  if (recovery.by_rank.size() == static_cast<std::size_t>(recovery.world)) finish_recovery();
}

/// Ends the recovery: every node of the round is back, or the time for that is over.
void Rendezvous::finish_recovery() {
  if (!recovery_) return;
  std::string missing;
  std::size_t count_missing = 0;
  for (int rank = 0; rank < recovery_->world; ++rank) {
    if (recovery_->by_rank.contains(rank)) continue;
    if (++count_missing <= kRanksShown) missing += " " + std::to_string(rank);
  }
  if (count_missing > 0)
    return cancel_recovery("these ranks have not come back in time:" + missing +
                           (count_missing > kRanksShown ? " and more" : ""));
  if (members_.first_in(Place::Participant, [](const Member& member) { return !member.native; }) !=
      nullptr)
    return cancel_recovery("torchrun nodes have begun another round");
  if (reported_generation_ != recovery_->generation)
    return cancel_recovery("a node knows of a newer one");
  adopt_round();
}

/// Whether an earlier host has counted a failure of the round already: then a node knows of more
/// restarts than the round began with.
bool Rendezvous::adopt_restart_count(const Recovery& recovery) {
  const bool is_counted = restarts_used_ > recovery.restart_count;
  raise_restart_count(recovery.restart_count);
  if (!is_counted) uncounted_ = recovery.generation;
  return is_counted;
}

void Rendezvous::adopt_round() {
  if (!recovery_) return;
  const Recovery recovery = std::move(*recovery_);
  recovery_.reset();
  // Nodes that joined meanwhile wait like newcomers.
  for (Member* newcomer : members_.list(Place::Participant)) {
    members_.set_join_deadline(*newcomer, std::nullopt);
    members_.set_place(*newcomer, newcomer->spare ? Place::Standby : Place::Redundant);
  }
  round_ = recovery.round;
  generation_ = recovery.generation;
  unseen_.begin(round_, generation_, recovery.by_rank.size());
  move_to(Phase::Running);
  had_round_ = true;
  const bool is_counted = adopt_restart_count(recovery);
  last_world_ = recovery.by_rank.size();
  round_lease_ = recovery.lease;
  excluded_may_work_ = true;
  store_ = recovery.store;
  restart_cause_.reset();
  for (const LostNode& node : std::exchange(lost_, {}))  // They are back.
    members_.mark_unrecorded(node.name);
  workers_.clear();
  deadline_.reset();
  torchrun_.reset_deadline();
  spares_step_in_.reset();
  bool numbered = true;
  for (const auto& [rank, node] : recovery.by_rank) {
    Member* member = members_.known(node.id);
    if (member == nullptr) return;
    member->rank = rank;
    members_.set_place(*member, Place::Participant);
    numbered = numbered && node.workers;
    if (numbered) workers_.push_back(*node.workers);
    if (member->connection)
      actions_.push_back(Resumed{*member->connection, round_, generation_, setup_.life});
    if (member->connection && closed_) actions_.push_back(RunClosed{*member->connection});
  }
  if (!numbered) workers_.clear();
  changed();
  actions_.push_back(RoundRecovered{true, round_, generation_, {}});
  end_if_finished();
  if (!recovery.failure) return;
  const auto& [who, what] = *recovery.failure;
  if (is_counted) return begin_restart(RestartCause::WorkersFailed, who, what);
  if (const Member* failed = members_.named(who)) fail_round(*failed, what);
}

void Rendezvous::cancel_recovery(const std::string& why) {
  if (!recovery_) return;
  const Recovery recovery = std::move(*recovery_);
  recovery_.reset();
  move_to(Phase::Gathering);
  actions_.push_back(RoundRecovered{false, recovery.round, recovery.generation, why});
  unseen_.begin(recovery.round, recovery.generation, static_cast<std::size_t>(recovery.world));
  if (recovery.failure || members_.counts().succeeded > 0) unseen_.clear();
  unseen_.end_round(now_);
  // Round numbers go on after the number of the cancelled round.
  round_ = std::max(round_, recovery.round + 1);
  had_round_ = true;
  spares_step_in_.reset();
  last_world_ = static_cast<std::size_t>(recovery.world);
  returns_ = Returns{recovery.deadline, recovery.generation, last_world_, {}};
  for (const auto& [rank, node] : recovery.by_rank)
    if (const Member* member = members_.known(node.id)) returns_->back.insert(member->instance);
  const auto fatal = count_lost_failure(recovery);
  for (Member* resuming : members_.list(Place::Resuming)) {
    Member& member = *resuming;
    members_.set_place(member, member.succeeded ? Place::Finished : Place::Restarting);
    member.restarted_round = recovery.round;
    if (!member.connection) continue;
    if (member.succeeded)
      actions_.push_back(
          Resumed{*member.connection, recovery.round, recovery.generation, setup_.life});
    else
      send_rejoin(*member.connection, "round " + std::to_string(recovery.round) +
                                          " could not go on after the rendezvous had been "
                                          "away: " +
                                          why);
  }
  changed();
  if (fatal) return end_run(false, fatal->first, why_no_restart(fatal->second));
  if (closed_) end_run(false, std::nullopt, why + "; the run is closed, so nobody can restart");
}

/// The node may be one of the cancelled round.
void Rendezvous::note_return(const NodeJoined& event) {
  if (!returns_ || event.generation == 0 || event.generation < returns_->generation) return;
  returns_->back.insert(event.instance);
  changed();
}

/// The number of nodes of the cancelled round that may still come back.
std::size_t Rendezvous::not_back() const {
  if (!returns_ || returns_->back.size() >= returns_->world) return 0;
  return returns_->world - returns_->back.size();
}

/// Counts a restart for a failure that a node of the cancelled round had while it could not reach
/// the host. Returns the failure if no restart is left for it.
std::optional<std::pair<NodeName, std::string>> Rendezvous::count_lost_failure(
    const Recovery& recovery) {
  const bool is_counted = adopt_restart_count(recovery);
  if (!recovery.failure) return std::nullopt;  // Another node of the round may still report one.
  uncounted_.reset();
  strikes_.count_failure(recovery.failure->first.addr);
  restart_cause_ = recovery.failure;
  if (is_counted) return std::nullopt;
  if (restarts_used_ >= run().max_restarts) return recovery.failure;
  ++restarts_used_;
  const auto& [who, what] = *recovery.failure;
  actions_.push_back(FailureCounted{who, recovery.round, what});
  return std::nullopt;
}

}  // namespace muster

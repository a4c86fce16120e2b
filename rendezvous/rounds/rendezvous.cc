#include "rendezvous/rounds/rendezvous.h"

#include <algorithm>
#include <limits>

namespace muster {

namespace {

/// Whether the node knows this round or a later one. A node that got the round from an earlier host
/// may have another number for it: then the generation decides.
bool knows_round(const NodeJoined& node, std::int64_t round, std::int64_t generation) {
  return node.last_round >= round || (node.generation > 0 && node.generation >= generation);
}

}  // namespace

Rendezvous::Rendezvous(const RendezvousSetup& setup)
    : setup_(setup),
      run_(setup.run),
      members_(setup.recorded),
      highest_generation_(setup.generation_floor),
      torchrun_(setup.keep_alive_interval) {}

RendezvousActions Rendezvous::step(const RendezvousEvent& event, Instant now) {
  const auto due = next_deadline();
  advance(now);
  begin_event();
  if (due && now_ - *due > setup_.lease / 2) extend_deadlines_after_pause(now_ - *due);
  std::visit([this](const auto& e) { on(e); }, event);
  apply_rules();
  return take_actions();
}

std::optional<Instant> Rendezvous::next_deadline() const {
  std::optional<Instant> next = members_.next_deadline();
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (!complete() && !closed_ && run_ && !recovery_) {
    if (unseen_.may_run(now_))
      also(unseen_.wait_until());
    else if (members_.counts().absent == 0)
      also(deadline_);
    also(spares_step_in_);
  }
  if (phase() == Phase::Preparing) also(prepared_by_);
  if (recovery_) also(recovery_->deadline);
  if (returns_ && !outcome_) also(returns_->until);
  return next;
}

void Rendezvous::move_to(Phase next) {
  if (round_phase_ == next) return;
  if (!may_follow(round_phase_, next)) violated("a round is in a phase that cannot follow");
  round_phase_ = next;
}

void Rendezvous::begin_event() {
  actions_.clear();
  members_.forget_erased();
}

RendezvousActions Rendezvous::take_actions() {
  if (members_.take_broken_index()) violated("an index names a member that does not exist");
  if (violated_) {
    const std::string invariant = std::move(*violated_);
    violated_.reset();
    return abandon(invariant);
  }
  return std::exchange(actions_, {});
}

void Rendezvous::violated(std::string_view invariant) const {
  if (!violated_) violated_ = invariant;
}

RendezvousActions Rendezvous::abandon(std::string_view invariant) {
  actions_.clear();
  violated_.reset();
  broken_ = invariant;
  outcome_ = RunEnded{{}, false, std::nullopt, "the host's record of this run is broken: "};
  outcome_->why += invariant;
  for (const auto& [id, member] : members_) {
    if (!member.connection) continue;
    if (member.waits == StoreWait::AtExit)
      actions_.push_back(ReleaseFromExitBarrier{*member.connection});
    if (!member.native) continue;
    RunEnded message = *outcome_;
    message.to = *member.connection;
    actions_.push_back(std::move(message));
  }
  members_.clear();  // A run without members breaks no invariant.
  recovery_.reset();
  torchrun_.clear();
  workers_.clear();
  closed_ = true;
  round_phase_ = Phase::Gathering;
  deadline_.reset();
  torchrun_.reset_deadline();
  spares_step_in_.reset();
  changed();
  return std::exchange(actions_, {});
}

const RunSettings& Rendezvous::run() const {
  static const RunSettings none;
  if (run_) return *run_;
  violated("a rule needs the run's settings, and nobody has brought them");
  return none;
}

/// The node's own name; if another instance has that name, the name with the next free number.
NodeName Rendezvous::name_for(const NodeJoined& event) const {
  NodeName name = event.name;
  if (event.instance.empty()) return name;  // An older muster sends no instance.
  const Member* member = members_.of_instance(event.instance);
  if (member != nullptr && member->name.addr == name.addr && member->name.pid == name.pid)
    return member->name;
  const auto is_taken = [&] {
    const Member* other = members_.named(name);
    return other != nullptr && other->native && !other->instance.empty() &&
           other->instance != event.instance;
  };
  if (!is_taken()) return name;
  // Start after the largest number in use: a thousand nodes of one name need no search each.
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t largest = members_.largest_local_id(name);
  name.local_id = largest >= 0 && largest < kLargest ? largest + 1 : 0;
  for (int tries = 0; tries < kMaxNameTries && is_taken(); ++tries)
    ++name.local_id;
  return name;
}

/// `resumes`: the node is in the round that is being taken up again. It may go on in a closed run.
std::optional<JoinRefused> Rendezvous::refusal_of(const NodeJoined& event, bool resumes) const {
  using Why = JoinRefused::Why;
  const std::string who = to_string(event.name);
  const auto refuse = [&](Why why, std::string text) {
    return JoinRefused{event.from, why, std::move(text)};
  };
  if (event.protocol_version != kNativeProtocolVersion)
    return refuse(Why::Version, who + " runs muster " + event.muster_version + " (protocol " +
                                    std::to_string(event.protocol_version) +
                                    "), the rendezvous speaks protocol " +
                                    std::to_string(kNativeProtocolVersion));
  if (closed_ && !resumes)
    return refuse(Why::Closed,
                  "the run is over" +
                      (outcome_ && !outcome_->why.empty() ? ": " + outcome_->why : std::string()));
  if (run_ && event.run != *run_)
    return JoinRefused{event.from, Why::Settings,
                       "settings differ: " + describe_difference(event.run, *run_) + " (" + who +
                           " against " + run_from_ + ")",
                       /*settings_differ=*/true};
  const auto most_nodes = std::min<std::int64_t>(event.run.max_nodes, std::int64_t{kMaxMembers});
  const auto most_workers = std::min<std::int64_t>(
      kMaxLocalWorldSize, kMaxRoundWorkers / std::max<std::int64_t>(most_nodes, 1));
  if (event.local_world_size < 1 || event.local_world_size > most_workers)
    return refuse(Why::Settings, who + " brings " + std::to_string(event.local_world_size) +
                                     " workers: with up to " + std::to_string(most_nodes) +
                                     " nodes, 1 to " + std::to_string(most_workers) +
                                     " are possible");
  const Member* other = members_.named(event.name);
  if (other == nullptr && members_.size() >= setup_.members)
    return refuse(Why::TooManyNodes, "the run has " + std::to_string(setup_.members) + " nodes");
  if (other != nullptr && !other->native)
    return refuse(Why::NameTaken, "a torchrun node is called " + who);
  if (other != nullptr && other->instance != event.instance)
    return refuse(Why::NameTaken,
                  "another node is called " + who +
                      ", and two nodes of an older muster at one address cannot be distinguished: "
                      "upgrade one of them");
  const Member* bound = members_.from(event.from);
  if (bound != nullptr && bound->name != event.name)
    return refuse(Why::NameTaken,
                  "this connection belongs to " + to_string(bound->name) + ", not " + who);
  return std::nullopt;
}

void Rendezvous::on(const NodeJoined& told) {
  NodeJoined event = told;
  event.name = name_for(told);
  if (told.life != 0 && setup_.life != 0 && told.life != setup_.life) event.last_round = -1;
  if (outcome_ && missed_the_end(event)) {
    RunEnded message = *outcome_;
    message.to = event.from;
    return actions_.push_back(std::move(message));
  }
  if (auto refusal = refusal_of(event)) {
    // The network is up: the nodes of a restored run could be back, too.
    if (refusal->why == JoinRefused::Why::Settings) first_is_back();
    return actions_.push_back(*std::move(refusal));
  }
  const bool of_recovery =
      recovery_ && told.generation == recovery_->generation && told.last_round == recovery_->round;
  const Member* before = members_.named(event.name);
  const bool is_new = before == nullptr;
  const bool reconnected =
      !is_new && (before->connection != event.from || before->rejoins == event.from);
  Member* member = register_member(event);
  if (member == nullptr) return;
  member->rejoins.reset();
  if (of_recovery) cancel_recovery("node " + to_string(event.name) + " has left it");
  note_return(event);
  update_unseen_workers(event);
  if (is_new) compare_command(event);
  if (!is_new) return join_again(*member, event, reconnected);
  if (move_out_if_kept_out(*member)) return;
  if (!hold_back(*member))
    members_.set_place(*member, event.spare ? Place::Standby : Place::Redundant);
  // If no other node comes, spares fill a first round that lacks nodes.
  if (first_round()) spares_step_in_ = later(now_, run().last_call_timeout);
}

/// A join may show that workers of the last round have stopped: a node joins only after it has
/// stopped its workers. A new agent at the address of a lost member shows that this machine reaches
/// the host, so the silent agent there is dead.
void Rendezvous::update_unseen_workers(const NodeJoined& event) {
  const bool was_in_it = knows_round(event, unseen_.round(), unseen_.generation());
  const bool in_its_place = std::any_of(lost_.begin(), lost_.end(), [&](const LostNode& node) {
    return node.name.addr == event.name.addr && node.proxied == event.proxied;
  });
  if (!complete() && (was_in_it || in_its_place)) unseen_.clear();
}

/// Adds the node, or updates it if it is a member already.
Member* Rendezvous::register_member(const NodeJoined& event) {
  if (!run_) {
    run_ = event.run;
    run_from_ = to_string(event.name);
  }
  Member* member = members_.named(event.name);
  if (member == nullptr) member = &members_.add(event.name, true);
  if (member->instance != event.instance) member->came_at = now_;
  bind(*member, event.from);
  members_.set_instance(*member, event.instance);
  member->resumes = event.resumes && !event.instance.empty();
  member->proxied = event.proxied;
  member->local_world_size = event.local_world_size;
  member->role = event.role;
  member->preferred_rank = event.preferred_rank;
  member->spare = event.spare;
  member->hosts_rendezvous = event.hosts_rendezvous;
  // A wrong number of a node must not use up the range of the type.
  if (is_credible(event.generation))
    reported_generation_ = std::max(reported_generation_, event.generation);
  highest_generation_ = std::max(highest_generation_, reported_generation_);
  if (event.generation > setup_.ended_generation && is_credible(event.generation))
    raise_restart_count(event.restart_count);
  note_command(event, member->name);
  touch(*member);
  members_.mark_unrecorded(member->name);
  return member;
}

/// A node may know more restarts than this host: an earlier host may have been killed after it had
/// announced a restart and before it could record it.
void Rendezvous::raise_restart_count(int reported) {
  reported = std::min(reported, run().max_restarts);
  if (reported <= restarts_used_) return;
  restarts_used_ = reported;
  uncounted_.reset();  // The restart may be that of a failure of the newest round.
  changed();
}

void Rendezvous::join_again(Member& member, const NodeJoined& event, bool reconnected) {
  // The node sent this join before it got the messages about the round or the restart, so the join
  // is outdated. But on a new connection the node cannot get the messages that were sent on the old
  // one: send them again.
  if (member.place == Place::Participant &&
      (!complete() || !knows_round(event, round_, generation_))) {
    if (complete() && reconnected && preparing() && member.rank == 0) prepare_round();
    if (complete() && reconnected && !preparing())
      actions_.push_back(announcement(member, event.from));
    return;
  }
  if (event.last_round < member.restarted_round && !reconnected) return;
  if (member.place == Place::Participant)
    begin_restart(RestartCause::Requested, event.name, "it joined again");
  if (outcome_ || member.erased) return;  // The restart may have ended the run.
  if (member.place == Place::Restarting) unseen_.clear();
  members_.set_succeeded(member, false);
  members_.mark_unrecorded(member.name);
  if (move_out_if_kept_out(member)) return;
  if (member.place == Place::Restarting || member.place == Place::Resuming) {
    members_.set_place(member, Place::Waiting);
    return members_.set_join_deadline(member, later(now_, run().join_timeout));
  }
  // A node that was left out of a round, or had finished, comes back as a newcomer. In any other
  // place this join repeats an earlier one.
  if (member.place == Place::LeftOut || member.place == Place::Finished)
    members_.set_place(member, event.spare ? Place::Standby : Place::Redundant);
}

void Rendezvous::on(const KeptAlive& event) {
  if (const Member* member = members_.from(event.from)) return touch(*member);
  if (!outcome_) return actions_.push_back(NotAMember{event.from});
  RunEnded message = *outcome_;
  message.to = event.from;
  actions_.push_back(std::move(message));
}

void Rendezvous::on(const NodeLeft& event) {
  Member* member = members_.from(event.from);
  if (member == nullptr) return;
  if (member->last_rank) unseen_.clear();
  lose(*member, RestartCause::NodeLeft, "it left");
}

void Rendezvous::on(const WorkersFailed& event) {
  const Member* member = members_.from(event.from);
  // A node that was lost reports the failure again, with the generation of its round.
  if (member == nullptr) return on(KeptAlive{event.from});
  if (!member->native) return;
  touch(*member);
  if (event.round == round_) fail_round(*member, event.what);
}

/// Counts a failure in the running round, and restarts the round.
void Rendezvous::fail_round(const Member& member, const std::string& what) {
  // Several nodes may fail for the same cause: a restart that has begun is not counted again.
  if (!complete() || draining() || member.place != Place::Participant) return;
  const NodeName who = member.name;
  strikes_.count_failure(who.addr);
  uncounted_.reset();
  if (restarts_used_ >= run().max_restarts) return end_run(false, who, why_no_restart(what));
  ++restarts_used_;
  unseen_.clear();
  begin_restart(RestartCause::WorkersFailed, who, what);
}

std::string Rendezvous::why_no_restart(const std::string& failure) const {
  if (run().max_restarts == 0) return failure + " (--max-restarts=0)";
  return failure + "; all " + std::to_string(restarts_used_) +
         " restarts (--max-restarts) are used";
}

void Rendezvous::on(const RestartRequested& event) {
  const Member* member = members_.from(event.from);
  if (member == nullptr || !member->native) return;
  touch(*member);
  if (event.round >= 0 && event.round != round_) return;  // It is about an earlier round.
  if (complete() && !draining() && member->place == Place::Participant)
    begin_restart(RestartCause::Requested, NodeName(member->name), event.what);
}

void Rendezvous::on(const StoreReady& event) {
  const Member* member = members_.from(event.from);
  if (member == nullptr || !member->native) return;
  touch(*member);
  const bool rank_0 = member->place == Place::Participant && member->rank == 0;
  if (phase() != Phase::Preparing || !rank_0 || event.round != round_) return;
  store_ = StoreAddress{event.addr, event.port};
  prepare_failures_ = 0;
  announce_round();
}

void Rendezvous::on(const NodeFinished& event) {
  Member* member = members_.from(event.from);
  if (member == nullptr || !member->native) return;
  touch(*member);
  const bool restarting = member->place == Place::Restarting || member->place == Place::LeftOut;
  if (!event.succeeded) {
    const bool in_this_round =
        member->place == Place::Participant && complete() && event.round == round_;
    if (in_this_round && preparing() && member->rank == 0)
      return drop_rank_0(NodeName(member->name), event.what);
    // A failed node of the round ends the run; any other failed node only leaves.
    if (in_this_round || (restarting && event.round == member->restarted_round))
      return end_run(false, member->name, event.what);
    return lose(*member, RestartCause::NodeLeft, event.what);
  }
  if (member->succeeded || event.round > round_) return;
  const bool in_round = phase() == Phase::Running || phase() == Phase::Draining;
  if (!restarting && !(member->place == Place::Participant && in_round)) return;
  members_.set_succeeded(*member, true);
  if (member->last_rank) unseen_.clear();
  members_.mark_unrecorded(member->name);
  changed();
  // The node got RestartRound after its workers had succeeded.
  if (restarting) members_.set_place(*member, Place::Finished);
  end_if_finished();
}

void Rendezvous::on(const ConnectionLost& event) {
  Member* member = members_.from(event.from);
  if (member == nullptr) return;
  member->closed = !member->proxied;
  if (!member->resumes || member->succeeded || outcome_)
    return lose(*member, RestartCause::NodeLost, "its connection closed");
  members_.unbind(*member);
  // While this process was paused, the node may have tried in vain to connect again.
  const bool was_paused = paused_until_ && now_ - *paused_until_ < setup_.lease;
  const Duration grace = member->proxied ? setup_.lease : setup_.closed_grace;
  if (member->proxied) touch(*member);  // Its lease begins now: it has to find the way back.
  const Instant until = was_paused ? *paused_until_ + setup_.lease : now_ + grace;
  members_.set_absent(*member, until, now_);
}

void Rendezvous::on(const RendezvousTimePassed&) {
  for (Member* member : members_.take_silent(now_)) {
    if (member->erased) continue;  // The loss of an earlier member has removed it.
    if (member->waits != StoreWait::No) {
      touch(*member);
      continue;
    }
    if (member->succeeded) continue;  // If the node is alive after all, it will get RunEnded.
    const Duration silent = member->native ? setup_.lease : setup_.dead_after;
    lose(*member, RestartCause::NodeLost,
         "not heard for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(silent).count()) +
             " s");
  }
  take_absent();
  release_held();
  join_deadlines();
  prepare_deadline();
  if (recovery_ && recovery_->deadline <= now_) finish_recovery();
}

void Rendezvous::host_was_frozen(Duration length, Instant now) {
  advance(now);
  for (const auto& [id, member] : members_)
    if (members_.is_watched(member, now_)) touch(member);
  if (prepared_by_) prepared_by_ = later(now_, setup_.prepare_within);
  extend_deadlines_after_pause(length);
}

/// This process was stopped, or got no processor time, so it could not receive the nodes' messages.
/// Nodes that connect again by themselves have a new lease from now on. No round could be completed
/// during the pause, so join deadlines are moved by its length.
void Rendezvous::extend_deadlines_after_pause(Duration length) {
  // One pause may be noticed twice: by step(), from a late event, and by the caller.
  if (paused_until_) length = std::min(length, now_ - *paused_until_);
  paused_until_ = now_;
  if (returns_) returns_->until = std::max(returns_->until, now_ + setup_.lease);
  for (auto& [id, member] : members_) {
    if (member.join_deadline)
      members_.set_join_deadline(member, later(*member.join_deadline, length));
    if (!member.resumes) continue;
    if (members_.is_watched(member, now_)) touch(member);
    if (member.absent_until)
      members_.set_absent(member, std::max(*member.absent_until, now_ + setup_.lease), now_);
  }
}

/// Rank 0 is alive, but it has not reported the address of the workers' store in time.
void Rendezvous::prepare_deadline() {
  if (phase() != Phase::Preparing || !prepared_by_ || *prepared_by_ > now_) return;
  const Member* first = rank_0();
  if (first == nullptr) return violated("a round is prepared that has no rank 0");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(setup_.prepare_within);
  const std::string why =
      "the workers' store was not ready within " + std::to_string(seconds.count()) + " s";
  if (first->connection) actions_.push_back(NotAMember{*first->connection, why});
  drop_rank_0(NodeName(first->name), why);
}

void Rendezvous::join_deadlines() {
  while (Member* member = members_.take_overdue_join(now_)) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(run().join_timeout).count();
    if (member->connection)
      actions_.push_back(
          JoinRefused{*member->connection, JoinRefused::Why::TimedOut,
                      "no round within " + std::to_string(seconds) +
                          " s (--rdzv-conf join_timeout): " + std::string(reason())});
    lose(*member, RestartCause::NodeLost, "its join_timeout is over");
  }
}

}  // namespace muster

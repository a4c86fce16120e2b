// The durable record of a run, and a run that begins with the record of an earlier host.
//
// The record has what the nodes cannot report again: restarts used, which nodes have finished, the
// outcome, and which nodes to expect. docs/rendezvous_rules.md, "What a
// restarted host does".

#include <algorithm>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {
namespace {

constexpr Duration kMaxRecordedLease = std::chrono::hours(24);
constexpr const char* kCannotResume =
    "the host was started again, and torchrun nodes cannot resume";

}  // namespace

// --- recording -----------------------------------------------------------------------------------

std::optional<RunChange> Rendezvous::take_changes(Instant now) {
  const bool is_changed = record_change_ || looked_at_ != revision_of_state();
  if (!setup_.recorded || !run_ || !is_changed) return std::nullopt;
  record_change_ = false;
  looked_at_ = revision_of_state();
  RunChange change{.record = make_record(*run_), .members = {}, .removed = {}};
  for (const NodeName& name : members_.take_unrecorded()) {
    const auto known = recorded_members_.find(name);
    auto record = make_record_of(name);
    if (!record) {
      if (known == recorded_members_.end()) continue;
      recorded_members_.erase(known);
      change.removed.push_back(name);
    } else if (known == recorded_members_.end() || known->second != *record) {
      recorded_members_.insert_or_assign(name, *record);
      change.members.push_back(*std::move(record));
    }
  }
  const bool same = recorded_ == change.record && recorded_deadline_ == deadline_;
  if (same && change.members.empty() && change.removed.empty()) return std::nullopt;
  recorded_ = change.record;
  recorded_deadline_ = deadline_;
  if (deadline_) change.record.last_call_left = std::max(Duration::zero(), *deadline_ - now);
  return change;
}

void Rendezvous::record_again() {
  recorded_.reset();
  record_change_ = true;
}

/// The record without last_call_left, which take_changes() adds.
RunRecord Rendezvous::make_record(const RunSettings& settings) const {
  RunRecord record{.settings = settings,
                   .life = setup_.life,
                   .round = round_,
                   .generation = generation_,
                   .highest_generation = highest_generation_,
                   .had_round = had_round_,
                   .complete = complete(),
                   .preparing = preparing(),
                   .draining = draining(),
                   .closed = closed_,
                   .restarts_used = restarts_used_,
                   .prepare_failures = prepare_failures_,
                   .last_world = static_cast<std::int64_t>(last_world_),
                   .store = store_,
                   .ended_generation = setup_.ended_generation};
  if (restart_cause_) {
    record.restart_who = restart_cause_->first;
    record.restart_what = restart_cause_->second;
  }
  if (outcome_) {
    record.outcome = RunOutcome{outcome_->succeeded, outcome_->who, outcome_->why};
    record.lost_agents.assign(lost_agents_.begin(), lost_agents_.end());
  }
  record.kept_out = kept_out_.entries();
  record.strikes = strikes_.hosts();
  record.lease = std::max(round_lease_, setup_.lease);
  record.uncounted_generation = uncounted_.value_or(0);
  return record;
}

std::optional<MemberRecord> Rendezvous::make_record_of(const NodeName& name) const {
  using Standing = MemberRecord::Standing;
  const Member* member = members_.named(name);
  // A later host tells every node that was a member at the end, spares too, that the run is over.
  const auto recorded = recorded_members_.find(name);
  if (outcome_ && member == nullptr && recorded != recorded_members_.end()) return recorded->second;
  const bool was_there = outcome_ && member != nullptr && member->native;
  if (was_there || (member != nullptr && (member->last_rank || member->succeeded))) {
    const bool finished = member->succeeded || member->finished;
    MemberRecord record{.name = name,
                        .standing = finished ? Standing::Finished : Standing::Member,
                        .rank = member->last_rank,
                        .native = member->native};
    if (!member->native) return record;
    record.instance = member->instance;
    record.local_world_size = member->local_world_size;
    record.role = member->role;
    record.preferred_rank = member->preferred_rank;
    record.spare = member->spare;
    record.hosts_rendezvous = member->hosts_rendezvous;
    return record;
  }
  const auto lost = std::find_if(lost_.begin(), lost_.end(),
                                 [&](const LostNode& node) { return node.name == name; });
  if (lost == lost_.end()) return std::nullopt;
  return MemberRecord{
      .name = name, .standing = Standing::Lost, .rank = lost->rank, .why = lost->why};
}

// --- beginning with a record ---------------------------------------------------------------------

void Rendezvous::restore(const RunRecord& record, const std::vector<MemberRecord>& members,
                         Instant now) {
  advance(now);
  own_life_ = std::exchange(setup_.life, record.life);
  run_ = record.settings;
  run_from_ = "the host's record of the run";
  round_ = record.round;
  generation_ = record.generation;
  highest_generation_ = std::max(highest_generation_, record.highest_generation);
  restored_generation_ = record.generation;
  // An older muster did not record ended_generation. Then all rounds that nodes of a run without a
  // round report belong to an earlier run.
  setup_.ended_generation =
      record.ended_generation.value_or(record.had_round ? 0 : record.highest_generation);
  had_round_ = record.had_round;
  if (record.complete && record.had_round)
    round_phase_ = record.draining    ? Phase::Draining
                   : record.preparing ? Phase::Preparing
                                      : Phase::Running;
  closed_ = record.closed;
  restarts_used_ = record.restarts_used;
  prepare_failures_ = record.prepare_failures;
  last_world_ = static_cast<std::size_t>(std::max<std::int64_t>(record.last_world, 0));
  store_ = record.store;
  last_call_left_ = record.last_call_left;
  kept_out_ = KeptOut(record.kept_out);
  strikes_ = StrikeList(record.strikes);
  round_lease_ = std::min(record.lease, kMaxRecordedLease);
  // A round that an older muster has recorded as running has cost no restart.
  const std::int64_t running = complete() && !draining() ? generation_ : 0;
  if (const std::int64_t uncounted = record.uncounted_generation.value_or(running); uncounted > 0)
    uncounted_ = uncounted;
  if (record.restart_who) restart_cause_ = {*record.restart_who, record.restart_what};
  if (record.outcome)
    outcome_ = RunEnded{{}, record.outcome->succeeded, record.outcome->who, record.outcome->why};
  lost_agents_.assign(record.lost_agents.begin(), record.lost_agents.end());
  members_.note_earlier_members();
  recorded_ = record;
  recorded_->last_call_left.reset();
  recorded_->first_failure.reset();
  for (const MemberRecord& member : members) {
    recorded_members_.emplace(member.name, member);
    members_.mark_unrecorded(member.name);
    if (had_round_ && !outcome_) restore_member(member);
    if (outcome_ && !member.instance.empty()) at_the_end_.insert(member.instance);
  }
  if (draining()) {
    for (auto& [id, member] : members_) {  // The muster nodes had already left the round.
      members_.set_place(member, member.succeeded ? Place::Finished : Place::Restarting);
      member.restarted_round = round_;
    }
  } else if (complete() && !outcome_) {
    restore_round();
  }
  expect_workers(members);
  nobody_is_back_ = true;
  returns_ = Returns{};
  expect_members(
      std::max(setup_.first_return, std::max(setup_.lease, round_lease_) + kReturnSlack));
  changed();
  apply_rules();
  actions_.clear();  // No node is connected yet.
}

void Rendezvous::restore_member(const MemberRecord& record) {
  using Standing = MemberRecord::Standing;
  if (record.standing == Standing::Lost)
    return lost_.push_back({record.name, record.rank.value_or(0), record.why, now_});
  if (!record.native) {
    if (record.standing != Standing::Finished)
      lost_.push_back({record.name, record.rank.value_or(0), kCannotResume, now_});
    return;
  }
  Member& member = members_.add(record.name, true);
  members_.set_instance(member, record.instance);
  member.resumes = !record.instance.empty();
  member.local_world_size = record.local_world_size;
  member.role = record.role;
  member.preferred_rank = record.preferred_rank;
  member.spare = record.spare;
  member.hosts_rendezvous = record.hosts_rendezvous;
  members_.set_last_rank(member, record.rank);
  member.rank = record.rank.value_or(0);
  members_.set_succeeded(member, record.standing == Standing::Finished);
  const bool in_round = complete() && record.rank;
  if (!in_round) member.restarted_round = complete() ? round_ : round_ - 1;
  if (!in_round)
    return members_.set_place(member, member.succeeded ? Place::Finished : Place::Restarting);
  members_.set_place(member, Place::Participant);
}

/// The workers of the newest round may still run where this host does not see them.
void Rendezvous::expect_workers(const std::vector<MemberRecord>& members) {
  // If a node has finished, or with a torchrun node in the round, the other nodes are fenced.
  const bool whole = std::all_of(members.begin(), members.end(), [](const MemberRecord& member) {
    return member.native && member.standing != MemberRecord::Standing::Finished;
  });
  if (!had_round_ || preparing() || !whole) return;
  unseen_.begin(complete() ? round_ : round_ - 1, generation_, last_world_);
  if (!complete()) unseen_.end_round(now_);
}

/// Restores the complete round of the record. It goes on if all of its members are muster nodes.
void Rendezvous::restore_round() {
  std::map<int, const Member*> by_rank;
  members_.for_each_in(Place::Participant,
                       [&](const Member& member) { by_rank.emplace(member.rank, &member); });
  const bool whole = by_rank.size() == last_world_ && !by_rank.empty() &&
                     by_rank.rbegin()->first == static_cast<int>(last_world_) - 1 &&
                     by_rank.size() == members_.count(Place::Participant);
  if (!whole) {
    const NodeName who = lost_.empty() ? NodeName{} : lost_.front().name;
    return begin_restart(RestartCause::NodeLost, who, kCannotResume);
  }
  std::vector<const Member*> ranked;
  ranked.reserve(by_rank.size());
  for (const auto& [rank, member] : by_rank)
    ranked.push_back(member);
  number_workers(ranked);
  may_be_complete_ = preparing();
  for (const Member* member : ranked)
    if (!member->succeeded && !preparing()) awaited_.insert(member->id);
}

void Rendezvous::expect_members(Duration within) {
  if (returns_) returns_->until = now_ + within;
  for (auto& [id, member] : members_)
    if (!member.succeeded && !member.connection) members_.set_absent(member, now_ + within, now_);
}

/// The first node has reached this host. The others can reach it, too, so from now on they have a
/// lease and 1 s.
void Rendezvous::first_is_back() {
  if (std::exchange(nobody_is_back_, false))
    expect_members(std::max(setup_.lease, round_lease_) + kReturnSlack);
}

/// Reports for the log when the last member of the restored round has come back.
void Rendezvous::handle_return(const Member& member) {
  if (awaited_.contains(member.id)) last_return_ = now_;
  if (awaited_.erase(member.id) > 0 && awaited_.empty() && complete())
    actions_.push_back(RoundRecovered{true, round_, generation_, {}});
}

// --- a record that is older than the nodes' knowledge --------------------------------------------

/// Whether the node knows a newer round than the record: the file was restored from a backup, or
/// could not be written for a while. A node with other settings belongs to another job.
bool Rendezvous::is_outdated_by(const NodeResumed& event) const {
  return restored_generation_ && run_ && event.join.run == *run_ &&
         event.join.generation > *restored_generation_ &&
         event.join.generation > setup_.ended_generation && is_credible(event.join.generation) &&
         !recovery_;
}

/// Lets the nodes rebuild the newer round, as for a host that knows nothing. Facts that only the
/// record has are kept: the restarts used, and the lower bound of the generations.
void Rendezvous::discard_restored_round() {
  restored_generation_.reset();
  awaited_.clear();
  uncounted_.reset();
  outcome_.reset();
  at_the_end_.clear();
  for (const auto& [name, record] : recorded_members_)
    members_.mark_unrecorded(name);
  closed_ = had_round_ = false;
  move_to(Phase::Gathering);
  std::vector<Member*> members;
  members.reserve(members_.size());
  for (auto& [id, member] : members_)
    members.push_back(&member);
  for (Member* member : members) {
    if (!member->connection) {
      remove(*member);
      continue;
    }
    const bool restarts = member->place == Place::Participant || member->place == Place::Restarting;
    if (!member->native || !restarts) continue;
    members_.set_place(*member, Place::Restarting);
    send_rejoin(*member->connection, "other nodes know of a newer round");
  }
  lost_.clear();
  restart_cause_.reset();
  store_.reset();
  workers_.clear();
  deadline_.reset();
  torchrun_.reset_deadline();
  setup_.life = own_life_;  // Another host made the nodes' round.
  changed();
}

}  // namespace muster

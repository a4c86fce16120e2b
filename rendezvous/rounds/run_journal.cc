#include "rendezvous/rounds/run_journal.h"

#include <algorithm>
#include <utility>

#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/run_core.h"

namespace muster {
namespace {

/// The members of a running round that have no record of their own.
std::vector<std::string> waiting_agents(const RunCore& run) {
  std::vector<std::string> instances;
  if (!run.complete()) return instances;
  const auto add = [&](const Member& member) {
    const bool is_recorded = member.last_rank || member.succeeded || member.instance.empty();
    if (!is_recorded && instances.size() < kMaxLostAgents) instances.push_back(member.instance);
  };
  for (const Place place : {Place::Redundant, Place::Standby, Place::HeldBack, Place::KeptOut})
    run.members.for_each_in(place, add);
  return instances;
}

/// The record without last_call_left, which take_changes() adds.
RunRecord make_record(const RunCore& run, const RunSettings& settings) {
  RunRecord record{.settings = settings,
                   .life = run.setup.life,
                   .round = run.round.number,
                   .generation = run.round.generation,
                   .highest_generation = run.generations.highest,
                   .had_round = run.round.had_one,
                   .complete = run.complete(),
                   .preparing = run.preparing(),
                   .draining = run.draining(),
                   .closed = run.ending.closed,
                   .restarts_used = run.restarts.used,
                   .prepare_failures = run.round.prepare_failures,
                   .last_world = static_cast<std::int64_t>(run.round.world),
                   .store = run.round.store,
                   .ended_generation = run.setup.ended_generation};
  if (run.restarts.cause) {
    record.restart_who = run.restarts.cause->first;
    record.restart_what = run.restarts.cause->second;
  }
  if (run.ending.outcome) {
    record.outcome = RunOutcome{run.ending.outcome->succeeded,
                                run.ending.outcome->who,
                                run.ending.outcome->why,
                                run.ending.outcome->preempted,
                                run.ending.outcome->without_progress,
                                run.ending.outcome->hopeless};
    record.lost_agents.assign(run.ending.lost_agents.begin(), run.ending.lost_agents.end());
  } else {
    record.lost_agents = waiting_agents(run);
  }
  record.kept_out = run.conduct.kept_out.entries();
  record.strikes = run.conduct.strikes.hosts();
  record.lease = std::max(run.round.lease, run.setup.lease);
  record.restart_costs = run.restarts.ledger.costs();
  record.uncounted_generation = run.restarts.uncounted.value_or(0);
  return record;
}

}  // namespace

void RunJournal::begin_with(const RunRecord& record, const std::vector<MemberRecord>& members) {
  record_ = record;
  record_->last_call_left.reset();
  // The run's own changes do not touch what its service adds.
  record_->first_failure.reset();
  record_->failure_report.reset();
  record_->ended_at_ms.reset();
  record_->began_at_ms.reset();
  record_->previous.reset();
  for (const MemberRecord& member : members)
    members_.emplace(member.name, member);
}

std::optional<RunChange> RunJournal::take_changes(RunCore& run, Instant now) {
  const bool must_look = must_look_ || looked_at_ != run.whole_revision();
  if (!run.setup.recorded || !run.settings || !must_look) return std::nullopt;
  must_look_ = false;
  looked_at_ = run.whole_revision();
  RunChange change{.record = make_record(run, *run.settings), .members = {}, .removed = {}};
  for (const NodeName& name : run.members.take_unrecorded()) {
    const auto known = members_.find(name);
    auto record = make_record_of(run, name);
    if (!record) {
      if (known == members_.end()) continue;
      members_.erase(known);
      change.removed.push_back(name);
    } else if (known == members_.end() || known->second != *record) {
      members_.insert_or_assign(name, *record);
      change.members.push_back(*std::move(record));
    }
  }
  const auto& last_call = run.last_call.end;
  const bool same = record_ == change.record && last_call_ == last_call;
  if (same && change.members.empty() && change.removed.empty()) return std::nullopt;
  record_ = change.record;
  last_call_ = last_call;
  if (last_call) change.record.last_call_left = std::max(Duration::zero(), *last_call - now);
  return change;
}

void RunJournal::record_again() {
  record_.reset();
  must_look_ = true;
}

std::optional<MemberRecord> RunJournal::make_record_of(const RunCore& run,
                                                       const NodeName& name) const {
  using Standing = MemberRecord::Standing;
  const Member* member = run.members.named(name);
  // A later host tells every node that was a member at the end, spares too, that the run is over.
  const auto recorded = members_.find(name);
  if (run.ending.outcome && member == nullptr && recorded != members_.end())
    return recorded->second;
  const bool was_there = run.ending.outcome && member != nullptr && member->native;
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
    if (const auto& doom = member->doom; doom && !run.ending.outcome)
      record.doom = RecordedDoom{doom->deadline_ms, doom->reason, doom->in_job, doom->is_needed};
    return record;
  }
  const auto lost = std::find_if(run.round.lost.begin(), run.round.lost.end(),
                                 [&](const LostNode& node) { return node.name == name; });
  if (lost == run.round.lost.end()) return std::nullopt;
  return MemberRecord{
      .name = name, .standing = Standing::Lost, .rank = lost->rank, .why = lost->why};
}

}  // namespace muster

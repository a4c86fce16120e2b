#include "rendezvous/rounds/restored_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/resuming.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {
namespace {

constexpr Duration kMaxRecordedLease = std::chrono::hours(24);
constexpr const char* kCannotResume =
    "the host was started again, and torchrun nodes cannot resume";

}  // namespace

void RestoredRun::restore(const RunRecord& record, const std::vector<MemberRecord>& members,
                          Instant now, WallTime wall) {
  run_.advance(now);
  run_.returns.own_life = std::exchange(run_.setup.life, record.life);
  run_.settings = record.settings;
  run_.settings_from = "the host's record of the run";
  run_.round.number = record.round;
  run_.round.generation = record.generation;
  run_.generations.highest = std::max(run_.generations.highest, record.highest_generation);
  run_.returns.restored_generation = record.generation;
  // An older muster did not record ended_generation. Then all rounds that nodes of a run without a
  // round report belong to an earlier run.
  run_.setup.ended_generation =
      record.ended_generation.value_or(record.had_round ? 0 : record.highest_generation);
  run_.round.had_one = record.had_round;
  if (record.complete && record.had_round)
    run_.round.phase = record.draining    ? RunPhase::Draining
                       : record.preparing ? RunPhase::Preparing
                                          : RunPhase::Running;
  run_.ending.closed = record.closed;
  run_.restarts.used = record.restarts_used;
  // Before --restart-policy every restart was one for a failure.
  run_.restarts.ledger =
      RestartLedger(record.restart_costs.value_or(RestartCosts{.failures = record.restarts_used}));
  run_.round.prepare_failures = record.prepare_failures;
  run_.round.world = static_cast<std::size_t>(std::max<std::int64_t>(record.last_world, 0));
  run_.round.store = record.store;
  run_.last_call.restored = record.last_call_left;
  run_.conduct.kept_out = KeptOut(record.kept_out);
  run_.conduct.strikes = StrikeList(record.strikes);
  run_.round.lease = std::min(record.lease, kMaxRecordedLease);
  // A round that an older muster has recorded as running has cost no restart.
  const std::int64_t running = run_.complete() && !run_.draining() ? run_.round.generation : 0;
  if (const std::int64_t uncounted = record.uncounted_generation.value_or(running); uncounted > 0)
    run_.restarts.uncounted = uncounted;
  if (record.restart_who) run_.restarts.cause = {*record.restart_who, record.restart_what};
  if (record.outcome)
    run_.ending.outcome = RunEnded{{},
                                   record.outcome->succeeded,
                                   record.outcome->who,
                                   record.outcome->why,
                                   record.outcome->preempted,
                                   record.outcome->without_progress,
                                   record.outcome->hopeless};
  run_.ending.lost_agents.assign(record.lost_agents.begin(), record.lost_agents.end());
  run_.members.note_earlier_members();
  run_.journal.begin_with(record, members);
  for (const MemberRecord& member : members) {
    run_.members.mark_unrecorded(member.name);
    if (run_.round.had_one && !run_.ending.outcome) restore_member(member, wall);
    if (run_.ending.outcome && !member.instance.empty())
      run_.ending.instances.insert(member.instance);
  }
  if (run_.draining()) {
    for (auto& [id, member] : run_.members) {  // The muster nodes had already left the round.
      run_.members.set_place(member, member.succeeded ? Place::Finished : Place::Restarting);
      member.restarted_round = run_.round.number;
    }
  } else if (run_.complete() && !run_.ending.outcome) {
    restore_round();
  }
  expect_workers(members);
  run_.returns.nobody = true;
  run_.returns.cancelled = Returns::Cancelled{};
  expect_members(std::max(run_.setup.first_return,
                          std::max(run_.setup.lease, run_.round.lease) + kReturnSlack));
  run_.changed();
  RoundRules(run_).apply_rules();
  run_.actions.clear();  // No node is connected yet.
}

void RestoredRun::restore_member(const MemberRecord& record, WallTime wall) {
  using Standing = MemberRecord::Standing;
  if (record.standing == Standing::Lost)
    return run_.round.lost.push_back({record.name, record.rank.value_or(0), record.why, run_.now});
  if (!record.native) {
    if (record.standing != Standing::Finished)
      run_.round.lost.push_back({record.name, record.rank.value_or(0), kCannotResume, run_.now});
    return;
  }
  Member& member = run_.members.add(record.name, true);
  run_.members.set_instance(member, record.instance);
  member.resumes = !record.instance.empty();
  member.local_world_size = record.local_world_size;
  member.role = record.role;
  member.preferred_rank = record.preferred_rank;
  member.spare = record.spare;
  member.hosts_rendezvous = record.hosts_rendezvous;
  run_.members.set_last_rank(member, record.rank);
  member.rank = record.rank.value_or(0);
  run_.members.set_succeeded(member, record.standing == Standing::Finished);
  if (const auto& doom = record.doom) {
    // The node goes when it goes, however long no host was there.
    constexpr std::int64_t kMaxMs = kLongestWait / std::chrono::milliseconds(1);
    const auto left = std::chrono::milliseconds(
        std::clamp<std::int64_t>(doom->deadline_ms - wall.microseconds / 1'000, 0, kMaxMs));
    run_.members.set_doom(member, Doom{.deadline = later(run_.now, left),
                                       .deadline_ms = doom->deadline_ms,
                                       .reason = doom->reason,
                                       .in_job = doom->in_job,
                                       .is_needed = doom->is_needed});
  }
  const bool in_round = run_.complete() && record.rank;
  if (!in_round)
    member.restarted_round = run_.complete() ? run_.round.number : run_.round.number - 1;
  if (!in_round)
    return run_.members.set_place(member, member.succeeded ? Place::Finished : Place::Restarting);
  run_.members.set_place(member, Place::Participant);
}

/// The workers of the newest round may still run where this host does not see them.
void RestoredRun::expect_workers(const std::vector<MemberRecord>& members) {
  // If a node has finished, or with a torchrun node in the round, the other nodes are fenced.
  const bool whole = std::all_of(members.begin(), members.end(), [](const MemberRecord& member) {
    return member.native && member.standing != MemberRecord::Standing::Finished;
  });
  if (!run_.round.had_one || run_.preparing() || !whole) return;
  run_.unseen.begin(run_.complete() ? run_.round.number : run_.round.number - 1,
                    run_.round.generation, run_.round.world);
  if (!run_.complete()) run_.unseen.end_round(run_.now);
}

/// Restores the complete round of the record. It goes on if all of its members are muster nodes.
void RestoredRun::restore_round() {
  std::map<int, const Member*> by_rank;
  run_.members.for_each_in(Place::Participant,
                           [&](const Member& member) { by_rank.emplace(member.rank, &member); });
  const bool whole = by_rank.size() == run_.round.world && !by_rank.empty() &&
                     by_rank.rbegin()->first == static_cast<int>(run_.round.world) - 1 &&
                     by_rank.size() == run_.members.count(Place::Participant);
  if (!whole) {
    const NodeName who = run_.round.lost.empty() ? NodeName{} : run_.round.lost.front().name;
    return RoundRules(run_).begin_restart(RestartCause::NodeLost, who, kCannotResume);
  }
  std::vector<const Member*> ranked;
  ranked.reserve(by_rank.size());
  for (const auto& [rank, member] : by_rank)
    ranked.push_back(member);
  RoundRules(run_).number_workers(ranked);
  run_.round.may_be_complete = run_.preparing();
  for (const Member* member : ranked)
    if (!member->succeeded && !run_.preparing()) run_.returns.awaited.insert(member->id);
}

void RestoredRun::expect_members(Duration within) {
  if (run_.returns.cancelled) run_.returns.cancelled->until = run_.now + within;
  for (auto& [id, member] : run_.members)
    if (!member.succeeded && !member.connection)
      run_.members.set_absent(member, run_.now + within, run_.now);
}

/// The first node has reached this host. The others can reach it, too, so from now on they have a
/// lease and 1 s.
void RestoredRun::first_is_back() {
  if (std::exchange(run_.returns.nobody, false))
    expect_members(std::max(run_.setup.lease, run_.round.lease) + kReturnSlack);
}

/// Reports for the log when the last member of the restored round has come back.
void RestoredRun::handle_return(const Member& member) {
  if (run_.returns.awaited.contains(member.id)) run_.returns.last = run_.now;
  if (run_.returns.awaited.erase(member.id) > 0 && run_.returns.awaited.empty() && run_.complete())
    run_.send(RoundRecovered{true, run_.round.number, run_.round.generation, {}});
}

/// Whether the node knows a newer round than the record: the file was restored from a backup, or
/// could not be written for a while. A node with other settings belongs to another job.
bool RestoredRun::is_outdated_by(const NodeResumed& event) const {
  return run_.returns.restored_generation && run_.settings &&
         agree(*run_.settings, event.join.run) &&
         event.join.generation > *run_.returns.restored_generation &&
         event.join.generation > run_.setup.ended_generation &&
         run_.is_credible(event.join.generation) && !run_.recovery;
}

/// Lets the nodes rebuild the newer round, as for a host that knows nothing. Facts that only the
/// record has are kept: the restarts used, and the lower bound of the generations.
void RestoredRun::discard_restored_round() {
  run_.returns.restored_generation.reset();
  run_.returns.awaited.clear();
  run_.restarts.uncounted.reset();
  run_.ending.outcome.reset();
  run_.ending.instances.clear();
  for (const auto& [name, record] : run_.journal.members())
    run_.members.mark_unrecorded(name);
  run_.ending.closed = run_.round.had_one = false;
  run_.move_to(RunPhase::Gathering);
  std::vector<Member*> members;
  members.reserve(run_.members.size());
  for (auto& [id, member] : run_.members)
    members.push_back(&member);
  for (Member* member : members) {
    if (!member->connection) {
      MemberWatch(run_).remove(*member);
      continue;
    }
    const bool restarts = member->place == Place::Participant || member->place == Place::Restarting;
    if (!member->native || !restarts) continue;
    run_.members.set_place(*member, Place::Restarting);
    Resuming(run_).send_rejoin(*member->connection, "other nodes know of a newer round");
  }
  run_.round.lost.clear();
  run_.restarts.cause.reset();
  run_.round.store.reset();
  run_.round.workers.clear();
  run_.round.drop_notice();
  run_.last_call.clear();
  run_.setup.life = run_.returns.own_life;  // Another host made the nodes' round.
  run_.changed();
}

}  // namespace muster

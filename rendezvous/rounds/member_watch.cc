#include "rendezvous/rounds/member_watch.h"

#include <algorithm>
#include <string>

#include "rendezvous/rounds/notices.h"
#include "rendezvous/rounds/restored_run.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {

void MemberWatch::bind(Member& member, ConnectionId connection) {
  RestoredRun(run_).first_is_back();
  run_.members.bind(member, connection);
  if (run_.round.notice) run_.round.untold.insert(member.id);
}

void MemberWatch::remove(Member& member, std::string_view why) {
  // A torchrun node that leaves after the run was closed has finished its part.
  const bool unfinished = !member.succeeded && !(run_.ending.closed && !member.native);
  if (member.last_rank && unfinished && !run_.ending.outcome)
    run_.round.lost.push_back(
        {member.name, *member.last_rank, std::string(why), run_.now, member.proxied});
  if (run_.recovery) run_.recovery->remove(member.id);
  Notices(run_).forget(member);
  run_.members.erase(member);
  if (run_.members.empty()) run_.conduct.damping.forget_addresses();
  run_.changed();
}

void MemberWatch::lose(Member& member, RestartCause cause, const std::string& what) {
  // A node that has finished, or a torchrun node of a closed run, is not lost when it goes. But in
  // a round that is still being prepared no node has finished, and that round cannot begin without
  // one of its members.
  const bool over = member.finished || (run_.ending.closed && !member.native);
  const bool lost = member.place == Place::Participant && run_.complete() && !member.succeeded &&
                    (run_.preparing() || !over);
  const NodeName who = member.name;
  // What follows a notice costs nothing, and torchrun's nodes cost nothing as under torchrun.
  const bool costs = member.native && !member.doom;
  // A new agent at the same address reaches the host, so the silent agent is dead.
  if (member.last_rank && (member.closed || address_has_newcomer(member))) run_.unseen.clear();
  if (!member.succeeded && !run_.ending.outcome && !(run_.ending.closed && !member.native))
    run_.send(NodeGone{who, run_.round.number, member.last_rank, cause, what});
  if (member.succeeded) {  // The node may go. Its result and its place in the round stay.
    run_.members.stop_watching(member);
    run_.members.set_absent(member, std::nullopt, run_.now);
    run_.members.set_join_deadline(member, std::nullopt);
    return run_.members.unbind(member);
  }
  if (cause == RestartCause::NodeLost && !member.instance.empty() && !run_.ending.outcome) {
    run_.ending.lost_agents.push_back(member.instance);
    if (run_.ending.lost_agents.size() > kMaxLostAgents) run_.ending.lost_agents.pop_front();
  }
  // After the end of the run a lost node is not counted: nodes may go then.
  if (lost && cause == RestartCause::NodeLost && !run_.preparing() && !run_.ending.outcome) {
    run_.conduct.damping.lost(member.instance, run_.now);
    run_.conduct.strikes.count_loss(who.addr);
  }
  // An agent that is started again and again may die in the round that was ended for it before that
  // has begun, and a service manager may stop it.
  const bool restarts_others = member.ended_a_round || (lost && !run_.preparing());
  if (restarts_others && !run_.ending.outcome && run_.now - member.came_at < kShortLife)
    run_.conduct.damping.gone_young(who.addr, run_.now);
  remove(member, what);
  if (lost && run_.members.counts().natives > 0 && costs)
    RoundRules(run_).lose_node(cause, who, what);
  else if (lost && run_.members.counts().natives > 0)
    RoundRules(run_).begin_restart(cause, who, what);
  else if (lost && run_.preparing())
    run_.move_to(RunPhase::Running);  // No muster node is left that waits for its rank.
  RoundRules(run_).end_if_finished();
}

/// Whether a connected muster node at this address has not been in the last complete round.
/// It must come the same way: behind a proxy that is away, the silent node may be well.
bool MemberWatch::address_has_newcomer(const Member& silent) const {
  return run_.members.any_at_address(silent.name.addr, [&](const Member& member) {
    return member.native && member.connection && !member.last_rank &&
           member.proxied == silent.proxied;
  });
}

void MemberWatch::touch(const Member& member) {
  run_.members.seen(member, run_.now, member.native ? run_.setup.lease : run_.setup.dead_after);
}

/// Takes the absent members whose time is over for lost.
void MemberWatch::take_absent() {
  while (Member* member = run_.members.overdue_absent(run_.now)) {
    // A member of a restored round may be on its way: others still come back, one after the other,
    // because this host needs time for each of them (TLS).
    const bool others_return = run_.returns.awaited.contains(member->id) &&
                               run_.returns.last != Instant{} &&
                               run_.returns.last + run_.setup.lease + kReturnSlack > run_.now;
    if (others_return) {
      run_.members.set_absent(*member, run_.returns.last + run_.setup.lease + kReturnSlack,
                              run_.now);
      continue;
    }
    if (closed_with_all_others(*member)) {
      // They count as silent, from now on: each has a lease.
      for (Member* other : run_.members.list(Place::Participant)) {
        if (!other->absent_until) continue;
        other->closed = false;
        touch(*other);
        run_.members.set_absent(
            *other, std::max(*other->absent_until, other->absent_since + run_.setup.lease),
            run_.now);
      }
      continue;
    }
    run_.members.set_absent(*member, std::nullopt, run_.now);
    lose(*member, RestartCause::NodeLost, "its connection closed");
  }
}

/// Whether the connections of all nodes of the round have closed within the same moment. Then their
/// processes have hardly ended: a proxy, a firewall or a switch has closed them, the nodes may
/// train on, and only their silence counts.
bool MemberWatch::closed_with_all_others(const Member& member) const {
  if (!run_.complete() || !member.closed || member.place != Place::Participant ||
      run_.round.world < 2)
    return false;
  bool all = true;
  run_.members.for_each_in(Place::Participant, [&](const Member& other) {
    all = all && other.native && other.closed && other.absent_until && !other.succeeded;
  });
  return all && run_.members.count(Place::Participant) == run_.round.world;
}

/// Holds the joining node back if it has been lost too often. Returns whether it did.
bool MemberWatch::hold_back(Member& member) {
  const auto hold = run_.conduct.damping.hold_of_node(member.instance, member.name.addr, run_.now);
  if (hold.until <= run_.now) return false;
  run_.members.set_held(member, hold.until);
  run_.members.set_place(member, Place::HeldBack);
  run_.send(NodeHeldBack{member.name, hold.losses, hold.wait, hold.of_address});
  return true;
}

/// The node waits like any newcomer.
void MemberWatch::let_in_again(Member& member) {
  run_.members.set_held(member, std::nullopt);
  run_.members.set_place(member, member.spare ? Place::Standby : Place::Redundant);
}

void MemberWatch::release_held() {
  for (Member* held = run_.members.first_held();
       held != nullptr && held->held_until && *held->held_until <= run_.now;
       held = run_.members.first_held())
    let_in_again(*held);
}

/// Lets a held-back node in early if the others are fewer than the minimum without it: then no
/// round runs that the node could disturb.
bool MemberWatch::let_in_if_needed() {
  Member* held = run_.members.first_held();
  if (held == nullptr) return false;
  const auto others = run_.members.count(Place::Participant) + run_.expected() +
                      run_.members.count(Place::Redundant) + run_.members.count(Place::Standby);
  if (others >= static_cast<std::size_t>(run_.known_settings().min_nodes)) return false;
  let_in_again(*held);
  return true;
}

/// This process was stopped, or got no processor time, so it could not receive the nodes' messages.
/// Nodes that connect again by themselves have a new lease from now on. No round could be completed
/// during the pause, so join deadlines are moved by its length.
void MemberWatch::extend_deadlines_after_pause(Duration length) {
  // One pause may be noticed twice: by step(), from a late event, and by the caller.
  if (run_.paused_until) length = std::min(length, run_.now - *run_.paused_until);
  run_.paused_until = run_.now;
  if (run_.returns.cancelled)
    run_.returns.cancelled->until =
        std::max(run_.returns.cancelled->until, run_.now + run_.setup.lease);
  for (auto& [id, member] : run_.members) {
    if (member.join_deadline)
      run_.members.set_join_deadline(member, later(*member.join_deadline, length));
    if (!member.resumes) continue;
    if (run_.members.is_watched(member, run_.now)) touch(member);
    if (member.absent_until)
      run_.members.set_absent(member, std::max(*member.absent_until, run_.now + run_.setup.lease),
                              run_.now);
  }
}

void MemberWatch::host_was_frozen(Duration length) {
  for (const auto& [id, member] : run_.members)
    if (run_.members.is_watched(member, run_.now)) touch(member);
  if (run_.round.prepared_by) run_.round.prepared_by = later(run_.now, run_.setup.prepare_within);
  extend_deadlines_after_pause(length);
}

void MemberWatch::time_passed() {
  for (Member* member : run_.members.take_silent(run_.now)) {
    if (member->erased) continue;  // The loss of an earlier member has removed it.
    if (member->waits != StoreWait::No) {
      touch(*member);
      continue;
    }
    if (member->succeeded) continue;  // If the node is alive after all, it will get RunEnded.
    const Duration silent = member->native ? run_.setup.lease : run_.setup.dead_after;
    lose(*member, RestartCause::NodeLost,
         "not heard for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(silent).count()) +
             " s");
  }
  take_absent();
  release_held();
  join_deadlines();
}

void MemberWatch::join_deadlines() {
  while (Member* member = run_.members.take_overdue_join(run_.now)) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(run_.known_settings().join_timeout)
            .count();
    if (member->connection)
      run_.send(
          JoinRefused{*member->connection, JoinRefused::Why::TimedOut,
                      "no round within " + std::to_string(seconds) +
                          " s (--rdzv-conf join_timeout): " + std::string(run_.reason.text(run_))});
    lose(*member, RestartCause::NodeLost, "its join_timeout is over");
  }
}

void MemberWatch::on(const ConnectionLost& event) {
  Member* member = run_.members.from(event.from);
  if (member == nullptr) return;
  member->closed = !member->proxied;
  if (!member->resumes || member->succeeded || run_.ending.outcome)
    return lose(*member, RestartCause::NodeLost, "its connection closed");
  run_.members.unbind(*member);
  // While this process was paused, the node may have tried in vain to connect again.
  const bool was_paused = run_.paused_until && run_.now - *run_.paused_until < run_.setup.lease;
  const Duration grace = member->proxied ? run_.setup.lease : run_.setup.closed_grace;
  if (member->proxied) touch(*member);  // Its lease begins now: it has to find the way back.
  const Instant until = was_paused ? *run_.paused_until + run_.setup.lease : run_.now + grace;
  run_.members.set_absent(*member, until, run_.now);
}

}  // namespace muster

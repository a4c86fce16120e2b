// The members of the rendezvous, and the place of each.

#include <algorithm>
#include <limits>
#include <vector>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {

void Rendezvous::bind(Member& member, ConnectionId connection) {
  first_is_back();
  members_.bind(member, connection);
}

const NodeName* Rendezvous::name_of(ConnectionId connection) const {
  const Member* member = members_.from(connection);
  return member == nullptr ? nullptr : &member->name;
}

bool Rendezvous::is_waiting(ConnectionId connection) const {
  const Member* member = members_.from(connection);
  if (member == nullptr) return false;
  switch (member->place) {
    case Place::Participant:
      return !complete() || preparing();
    case Place::Waiting:
    case Place::Redundant:
    case Place::Standby:
    case Place::HeldBack:
    case Place::KeptOut:
      return true;
    default:
      return false;
  }
}

void Rendezvous::remove(Member& member, std::string_view why) {
  // A torchrun node that leaves after the run was closed has finished its part.
  const bool unfinished = !member.succeeded && !(closed_ && !member.native);
  if (member.last_rank && unfinished && !outcome_)
    lost_.push_back({member.name, *member.last_rank, std::string(why), now_, member.proxied});
  if (recovery_)
    std::erase_if(recovery_->by_rank,
                  [&](const auto& entry) { return entry.second.id == member.id; });
  torchrun_.remove(member.id);
  members_.erase(member);
  if (members_.empty()) damping_.forget_addresses();
  changed();
}

void Rendezvous::lose(Member& member, RestartCause cause, const std::string& what) {
  // A node that has finished, or a torchrun node of a closed run, is not lost when it goes. But in
  // a round that is still being prepared no node has finished, and that round cannot begin without
  // one of its members.
  const bool over = member.finished || (closed_ && !member.native);
  const bool lost = member.place == Place::Participant && complete() && !member.succeeded &&
                    (preparing() || !over);
  const NodeName who = member.name;
  // A new agent at the same address reaches the host, so the silent agent is dead.
  if (member.last_rank && (member.closed || address_has_newcomer(member))) unseen_.clear();
  if (!member.succeeded && !outcome_ && !(closed_ && !member.native))
    actions_.push_back(NodeGone{who, round_, member.last_rank, cause, what});
  if (member.succeeded) {  // The node may go. Its result and its place in the round stay.
    members_.stop_watching(member);
    members_.set_absent(member, std::nullopt, now_);
    members_.set_join_deadline(member, std::nullopt);
    return members_.unbind(member);
  }
  if (cause == RestartCause::NodeLost && !member.instance.empty() && !outcome_) {
    lost_agents_.push_back(member.instance);
    if (lost_agents_.size() > kMaxLostAgents) lost_agents_.pop_front();
  }
  // After the end of the run a lost node is not counted: nodes may go then.
  if (lost && cause == RestartCause::NodeLost && !preparing() && !outcome_) {
    damping_.lost(member.instance, now_);
    strikes_.count_loss(who.addr);
  }
  // An agent that is started again and again may die in the round that was ended for it before that
  // has begun, and a service manager may stop it.
  const bool restarts_others = member.ended_a_round || (lost && !preparing());
  if (restarts_others && !outcome_ && now_ - member.came_at < kShortLife)
    damping_.gone_young(who.addr, now_);
  remove(member, what);
  if (lost && members_.counts().natives > 0)
    begin_restart(cause, who, what);
  else if (lost && preparing())
    move_to(Phase::Running);  // No muster node is left that waits for its rank.
  end_if_finished();
}

bool Rendezvous::is_reusable() const {
  // Every member is a muster node, and the node knows the outcome or has no connection any more.
  return closed_ && members_.counts().natives == members_.size() &&
         (outcome_ || members_.counts().connected == 0);
}

/// Whether a connected muster node at this address has not been in the last complete round.
/// It must come the same way: behind a proxy that is away, the silent node may be well.
bool Rendezvous::address_has_newcomer(const Member& silent) const {
  return members_.any_at_address(silent.name.addr, [&](const Member& member) {
    return member.native && member.connection && !member.last_rank &&
           member.proxied == silent.proxied;
  });
}

// A node that has been in a round has a generation.
bool Rendezvous::missed_the_end(const NodeJoined& event) const {
  return outcome_ && (event.generation > 0 || at_the_end_.contains(event.instance) ||
                      std::find(lost_agents_.begin(), lost_agents_.end(), event.instance) !=
                          lost_agents_.end());
}

const NodeName* Rendezvous::torchrun_leader() const {
  if (!complete()) return nullptr;
  const Member* leader = rank_0();
  return leader == nullptr || leader->native ? nullptr : &leader->name;
}

const Member* Rendezvous::rank_0() const {
  return members_.first_in(Place::Participant,
                           [](const Member& member) { return member.rank == 0; });
}

void Rendezvous::touch(const Member& member) {
  members_.seen(member, now_, member.native ? setup_.lease : setup_.dead_after);
}

/// Takes the absent members whose time is over for lost.
void Rendezvous::take_absent() {
  while (Member* member = members_.overdue_absent(now_)) {
    // A member of a restored round may be on its way: others still come back, one after the other,
    // because this host needs time for each of them (TLS).
    const bool others_return = awaited_.contains(member->id) && last_return_ != Instant{} &&
                               last_return_ + setup_.lease + kReturnSlack > now_;
    if (others_return) {
      members_.set_absent(*member, last_return_ + setup_.lease + kReturnSlack, now_);
      continue;
    }
    if (closed_with_all_others(*member)) {
      // They count as silent, from now on: each has a lease.
      for (Member* other : members_.list(Place::Participant)) {
        if (!other->absent_until) continue;
        other->closed = false;
        touch(*other);
        members_.set_absent(
            *other, std::max(*other->absent_until, other->absent_since + setup_.lease), now_);
      }
      continue;
    }
    members_.set_absent(*member, std::nullopt, now_);
    lose(*member, RestartCause::NodeLost, "its connection closed");
  }
}

/// Whether the connections of all nodes of the round have closed within the same moment. Then their
/// processes have hardly ended: a proxy, a firewall or a switch has closed them, the nodes may
/// train on, and only their silence counts.
bool Rendezvous::closed_with_all_others(const Member& member) const {
  if (!complete() || !member.closed || member.place != Place::Participant || last_world_ < 2)
    return false;
  bool all = true;
  members_.for_each_in(Place::Participant, [&](const Member& other) {
    all = all && other.native && other.closed && other.absent_until && !other.succeeded;
  });
  return all && members_.count(Place::Participant) == last_world_;
}

// --- nodes that are lost repeatedly --------------------------------------------------------------

/// Holds the joining node back if it has been lost too often. Returns whether it did.
bool Rendezvous::hold_back(Member& member) {
  const auto hold = damping_.hold_of_node(member.instance, member.name.addr, now_);
  if (hold.until <= now_) return false;
  members_.set_held(member, hold.until);
  members_.set_place(member, Place::HeldBack);
  actions_.push_back(NodeHeldBack{member.name, hold.losses, hold.wait, hold.of_address});
  return true;
}

/// The node waits like any newcomer.
void Rendezvous::let_in_again(Member& member) {
  members_.set_held(member, std::nullopt);
  members_.set_place(member, member.spare ? Place::Standby : Place::Redundant);
}

void Rendezvous::release_held() {
  for (Member* held = members_.first_held(); held != nullptr && *held->held_until <= now_;
       held = members_.first_held())
    let_in_again(*held);
}

/// Lets a held-back node in early if the others are fewer than the minimum without it: then no
/// round runs that the node could disturb.
bool Rendezvous::let_in_if_needed() {
  Member* held = members_.first_held();
  if (held == nullptr) return false;
  const auto others = members_.count(Place::Participant) + expected() +
                      members_.count(Place::Redundant) + members_.count(Place::Standby);
  if (others >= static_cast<std::size_t>(run().min_nodes)) return false;
  let_in_again(*held);
  return true;
}

}  // namespace muster

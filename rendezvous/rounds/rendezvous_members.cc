// The members of the rendezvous, and the place of each.

#include <algorithm>
#include <limits>
#include <vector>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {

Rendezvous::MemberId Rendezvous::add_member(const NodeName& name, bool native) {
  const MemberId id = next_id_++;
  Member member{.id = id, .name = name, .native = native};
  member.order = ++sequence_;
  places_[static_cast<std::size_t>(Place::Away)][member.order] = id;
  counts_ += counts_of(member);
  members_.emplace(id, std::move(member));
  by_name_[name] = id;
  if (!native) torchrun_.add(id);
  changed();
  return id;
}

void Rendezvous::bind(MemberId id, ConnectionId connection) {
  Member* member = known(id);
  if (member == nullptr) return;
  if (member->connection && *member->connection != connection)
    by_connection_.erase(member->connection->value);
  first_is_back();
  set_absent(id, std::nullopt);
  member->closed = false;
  set_connection(*member, connection);
  by_connection_[connection.value] = id;
}

const NodeName* Rendezvous::name_of(ConnectionId connection) const {
  const Member* member = from(connection);
  return member == nullptr ? nullptr : &member->name;
}

bool Rendezvous::is_waiting(ConnectionId connection) const {
  const Member* member = from(connection);
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

Rendezvous::Member* Rendezvous::find(MemberId id) {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

const Rendezvous::Member* Rendezvous::known(MemberId id) const {
  const auto found = members_.find(id);
  if (found != members_.end()) return &found->second;
  violated("an index names a member that does not exist");
  return nullptr;
}
Rendezvous::Member* Rendezvous::known(MemberId id) {
  return const_cast<Member*>(std::as_const(*this).known(id));
}

const Rendezvous::Member* Rendezvous::named(const NodeName& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : known(found->second);
}
Rendezvous::Member* Rendezvous::named(const NodeName& name) {
  return const_cast<Member*>(std::as_const(*this).named(name));
}

const Rendezvous::Member* Rendezvous::from(ConnectionId connection) const {
  const auto found = by_connection_.find(connection.value);
  return found == by_connection_.end() ? nullptr : known(found->second);
}
Rendezvous::Member* Rendezvous::from(ConnectionId connection) {
  return const_cast<Member*>(std::as_const(*this).from(connection));
}

void Rendezvous::set_place(MemberId id, Place where) {
  Member* member = known(id);
  if (member == nullptr) return;
  places_[static_cast<std::size_t>(member->place)].erase(member->order);
  change(*member, [&] { member->place = where; });
  member->order = ++sequence_;
  places_[static_cast<std::size_t>(where)][member->order] = id;
  mark_unrecorded(member->name);
  changed();
}

void Rendezvous::erase(MemberId id, std::string_view why) {
  set_place(id, Place::Away);
  const Member* found = known(id);
  if (found == nullptr) return;
  const Member& member = *found;
  // A torchrun node that leaves after the run was closed has finished its part.
  const bool unfinished = !member.succeeded && !(closed_ && !member.native);
  if (member.last_rank && unfinished && !outcome_)
    lost_.push_back({member.name, *member.last_rank, std::string(why), now_, member.proxied});
  const auto instance = by_instance_.find(member.instance);
  if (instance != by_instance_.end() && instance->second == id) by_instance_.erase(instance);
  set_join_deadline(id, std::nullopt);
  set_absent(id, std::nullopt);
  set_held(id, std::nullopt);
  if (recovery_)
    std::erase_if(recovery_->by_rank, [&](const auto& entry) { return entry.second.id == id; });
  liveness_.remove(id);
  torchrun_.remove(id);
  places_[static_cast<std::size_t>(Place::Away)].erase(member.order);
  by_name_.erase(member.name);
  if (member.connection) by_connection_.erase(member.connection->value);
  counts_ -= counts_of(member);
  members_.erase(id);
  if (members_.empty()) damping_.forget_addresses();
  changed();
}

void Rendezvous::gone(MemberId id, RestartCause cause, const std::string& what) {
  Member* found = known(id);
  if (found == nullptr) return;
  Member& member = *found;
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
    liveness_.remove(id);
    set_absent(id, std::nullopt);
    set_join_deadline(id, std::nullopt);
    if (member.connection) by_connection_.erase(member.connection->value);
    set_connection(member, std::nullopt);
    return;
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
  erase(id, what);
  if (lost && counts_.natives > 0)
    begin_restart(cause, who, what);
  else if (lost && preparing())
    move_to(Phase::Running);  // No muster node is left that waits for its rank.
  end_if_finished();
}

bool Rendezvous::is_reusable() const {
  // Every member is a muster node, and the node knows the outcome or has no connection any more.
  return closed_ && counts_.natives == members_.size() && (outcome_ || counts_.connected == 0);
}

/// Whether a connected muster node at this address has not been in the last complete round.
/// It must come the same way: behind a proxy that is away, the silent node may be well.
bool Rendezvous::address_has_newcomer(const Member& silent) const {
  const std::string& addr = silent.name.addr;
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  // The names are ordered by address first.
  for (auto entry = by_name_.lower_bound({addr, kLeast, kLeast});
       entry != by_name_.end() && entry->first.addr == addr; ++entry) {
    const Member* member = known(entry->second);
    if (member != nullptr && member->native && member->connection && !member->last_rank &&
        member->proxied == silent.proxied)
      return true;
  }
  return false;
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

const Rendezvous::Member* Rendezvous::rank_0() const {
  return first_in(Place::Participant, [](const Member& member) { return member.rank == 0; });
}

void Rendezvous::touch(MemberId id) {
  if (const Member* member = known(id))
    liveness_.seen(id, now_, member->native ? setup_.lease : setup_.dead_after);
}

void Rendezvous::set_join_deadline(MemberId id, std::optional<Instant> deadline) {
  Member* member = known(id);
  if (member == nullptr) return;
  if (member->join_deadline) join_deadlines_.erase({*member->join_deadline, id});
  member->join_deadline = deadline;
  if (deadline) join_deadlines_.emplace(*deadline, id);
}

void Rendezvous::set_absent(MemberId id, std::optional<Instant> until) {
  Member* member = known(id);
  if (member == nullptr) return;
  if (member->absent_until) absent_.erase({*member->absent_until, id});
  if (until && !member->absent_until) member->absent_since = now_;
  change(*member, [&] { member->absent_until = until; });
  if (until) absent_.emplace(*until, id);
}

/// Takes the absent members whose time is over for lost.
void Rendezvous::take_absent() {
  while (!absent_.empty() && absent_.begin()->first <= now_) {
    const MemberId id = absent_.begin()->second;
    Member* member = known(id);
    if (member == nullptr) return;
    // A member of a restored round may be on its way: others still come back, one after the other,
    // because this host needs time for each of them (TLS).
    const bool others_return = awaited_.contains(id) && last_return_ != Instant{} &&
                               last_return_ + setup_.lease + kReturnSlack > now_;
    if (others_return) {
      set_absent(id, last_return_ + setup_.lease + kReturnSlack);
      continue;
    }
    if (closed_with_all_others(*member)) {
      // They count as silent, from now on: each has a lease.
      std::vector<MemberId> silent;
      for_each_in(Place::Participant, [&](const Member& other) { silent.push_back(other.id); });
      for (const MemberId each : silent) {
        Member* other = known(each);
        if (other == nullptr || !other->absent_until) continue;
        other->closed = false;
        touch(each);
        set_absent(each, std::max(*other->absent_until, other->absent_since + setup_.lease));
      }
      continue;
    }
    set_absent(id, std::nullopt);
    gone(id, RestartCause::NodeLost, "its connection closed");
  }
}

/// Whether the connections of all nodes of the round have closed within the same moment. Then their
/// processes have hardly ended: a proxy, a firewall or a switch has closed them, the nodes may
/// train on, and only their silence counts.
bool Rendezvous::closed_with_all_others(const Member& member) const {
  if (!complete() || !member.closed || member.place != Place::Participant || last_world_ < 2)
    return false;
  bool all = true;
  for_each_in(Place::Participant, [&](const Member& other) {
    all = all && other.native && other.closed && other.absent_until && !other.succeeded;
  });
  return all && count(Place::Participant) == last_world_;
}

// --- nodes that are lost repeatedly --------------------------------------------------------------

/// Holds the joining node back if it has been lost too often. Returns whether it did.
bool Rendezvous::hold_back(MemberId id) {
  const Member* member = known(id);
  if (member == nullptr) return false;
  const auto hold = damping_.hold_of_node(member->instance, member->name.addr, now_);
  if (hold.until <= now_) return false;
  set_held(id, hold.until);
  set_place(id, Place::HeldBack);
  actions_.push_back(NodeHeldBack{member->name, hold.losses, hold.wait, hold.of_address});
  return true;
}

void Rendezvous::set_held(MemberId id, std::optional<Instant> until) {
  Member* member = known(id);
  if (member == nullptr) return;
  if (member->held_until) held_.erase({*member->held_until, id});
  member->held_until = until;
  if (until) held_.emplace(*until, id);
}

/// The node waits like any newcomer.
void Rendezvous::let_in_again(MemberId id) {
  const Member* member = known(id);
  if (member == nullptr) return;
  set_held(id, std::nullopt);
  set_place(id, member->spare ? Place::Standby : Place::Redundant);
}

void Rendezvous::release_held() {
  while (!held_.empty() && held_.begin()->first <= now_)
    let_in_again(held_.begin()->second);
}

/// Lets a held-back node in early if the others are fewer than the minimum without it: then no
/// round runs that the node could disturb.
bool Rendezvous::let_in_if_needed() {
  if (held_.empty()) return false;
  const auto others =
      count(Place::Participant) + expected() + count(Place::Redundant) + count(Place::Standby);
  if (others >= static_cast<std::size_t>(run().min_nodes)) return false;
  let_in_again(held_.begin()->second);
  return true;
}

// --- counts --------------------------------------------------------------------------------------

/// The part of one member in counts_.
MemberCounts Rendezvous::counts_of(const Member& member) {
  const auto one_if = [](bool condition) { return std::size_t{condition ? 1U : 0U}; };
  const bool participates = member.place == Place::Participant;
  return {.natives = one_if(member.native),
          .connected = one_if(member.connection.has_value()),
          .succeeded = one_if(member.succeeded),
          .torch_redundant = one_if(!member.native && member.place == Place::Redundant),
          .working = one_if(participates && !member.succeeded),
          .returned = one_if(participates && member.last_rank),
          .absent = one_if(participates && member.absent_until)};
}

void Rendezvous::set_connection(Member& member, std::optional<ConnectionId> connection) {
  change(member, [&] { member.connection = connection; });
}

void Rendezvous::set_last_rank(Member& member, std::optional<int> rank) {
  change(member, [&] { member.last_rank = rank; });
}

void Rendezvous::set_succeeded(Member& member, bool succeeded) {
  change(member, [&] { member.succeeded = succeeded; });
}

bool Rendezvous::counts_are_right() const {
  MemberCounts scanned;
  for (const auto& [id, member] : members_)
    scanned += counts_of(member);
  return scanned == counts_;
}

}  // namespace muster

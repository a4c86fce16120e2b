#include "rendezvous/rounds/member_table.h"

#include <algorithm>
#include <limits>

namespace muster {

Member& MemberTable::add(const NodeName& name, bool native) {
  const Id id = next_id_++;
  Member& member =
      members_.emplace(id, Member{.id = id, .name = name, .native = native}).first->second;
  member.order = ++sequence_;
  at(Place::Away)[member.order] = id;
  counts_ += counts_of(member);
  by_name_[name] = id;
  ++revision_;
  return member;
}

void MemberTable::erase(Member& member) {
  set_place(member, Place::Away);
  if (member.erased) return;
  const auto instance = by_instance_.find(member.instance);
  if (instance != by_instance_.end() && instance->second == member.id) by_instance_.erase(instance);
  move(join_deadlines_, member.id, member.join_deadline, std::nullopt);
  move(absent_, member.id, member.absent_until, std::nullopt);
  move(held_, member.id, member.held_until, std::nullopt);
  if (member.doom) doomed_.erase({member.doom->deadline, member.id});
  liveness_.remove(member.id);
  at(Place::Away).erase(member.order);
  by_name_.erase(member.name);
  if (member.connection) by_connection_.erase(member.connection->value);
  counts_ -= counts_of(member);
  member.erased = true;
  erased_.push_back(members_.extract(member.id));
}

void MemberTable::clear() {
  for (auto& [id, member] : members_) {
    mark_unrecorded(member.name);
    member.erased = true;
  }
  while (!members_.empty())
    erased_.push_back(members_.extract(members_.begin()));
  by_name_.clear();
  by_instance_.clear();
  by_connection_.clear();
  places_ = {};
  counts_ = {};
  liveness_ = {};
  join_deadlines_.clear();
  absent_.clear();
  held_.clear();
  doomed_.clear();
  broken_index_ = false;
  ++revision_;
}

// --- look-up -------------------------------------------------------------------------------------

const Member* MemberTable::known(Id id) const {
  const auto found = members_.find(id);
  if (found != members_.end()) return &found->second;
  broken_index_ = true;
  return nullptr;
}

bool MemberTable::may_change(const Member& member) const {
  if (member.erased) broken_index_ = true;
  return !member.erased;
}

const Member* MemberTable::from(ConnectionId connection) const {
  const auto found = by_connection_.find(connection.value);
  return found == by_connection_.end() ? nullptr : known(found->second);
}

const Member* MemberTable::named(const NodeName& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : known(found->second);
}

const Member* MemberTable::of_instance(const std::string& instance) const {
  const auto found = by_instance_.find(instance);
  return found == by_instance_.end() ? nullptr : known(found->second);
}
Member* MemberTable::of_instance(const std::string& instance) {
  return writable(std::as_const(*this).of_instance(instance));
}

NodeName MemberTable::first_name_at(const std::string& addr) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  return {addr, kLeast, kLeast};
}

std::int64_t MemberTable::largest_local_id(const NodeName& name) const {
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  auto after = by_name_.upper_bound({name.addr, name.pid, kLargest});
  if (after == by_name_.begin()) return name.local_id;
  return std::prev(after)->first.local_id;
}

std::vector<Member*> MemberTable::list(Place where) {
  std::vector<Member*> members;
  for (const auto& [order, id] : at(where))
    if (Member* member = known(id)) members.push_back(member);
  return members;
}

// --- changes -------------------------------------------------------------------------------------

void MemberTable::set_place(Member& member, Place where) {
  if (!may_change(member)) return;
  at(member.place).erase(member.order);
  change(member, [&] { member.place = where; });
  member.order = ++sequence_;
  at(where)[member.order] = member.id;
  mark_unrecorded(member.name);
  ++revision_;
}

void MemberTable::bind(Member& member, ConnectionId connection) {
  if (!may_change(member)) return;
  if (member.connection) by_connection_.erase(member.connection->value);
  move(absent_, member.id, member.absent_until, std::nullopt);
  change(member, [&] {
    member.absent_until.reset();
    member.connection = connection;
  });
  member.closed = false;
  by_connection_[connection.value] = member.id;
}

void MemberTable::unbind(Member& member) {
  if (!may_change(member) || !member.connection) return;
  by_connection_.erase(member.connection->value);
  change(member, [&] { member.connection.reset(); });
}

void MemberTable::set_instance(Member& member, const std::string& instance) {
  if (!may_change(member)) return;
  member.instance = instance;
  if (!instance.empty()) by_instance_[instance] = member.id;
}

void MemberTable::set_last_rank(Member& member, std::optional<int> rank) {
  if (may_change(member)) change(member, [&] { member.last_rank = rank; });
}

void MemberTable::set_succeeded(Member& member, bool succeeded) {
  if (may_change(member)) change(member, [&] { member.succeeded = succeeded; });
}

// --- deadlines -----------------------------------------------------------------------------------

void MemberTable::move(Deadlines& deadlines, Id id, const std::optional<Instant>& from,
                       const std::optional<Instant>& to) {
  if (from) deadlines.erase({*from, id});
  if (to) deadlines.emplace(*to, id);
}

void MemberTable::set_join_deadline(Member& member, std::optional<Instant> deadline) {
  if (!may_change(member)) return;
  move(join_deadlines_, member.id, member.join_deadline, deadline);
  member.join_deadline = deadline;
}

void MemberTable::set_absent(Member& member, std::optional<Instant> until, Instant now) {
  if (!may_change(member)) return;
  move(absent_, member.id, member.absent_until, until);
  if (until && !member.absent_until) member.absent_since = now;
  change(member, [&] { member.absent_until = until; });
}

void MemberTable::set_held(Member& member, std::optional<Instant> until) {
  if (!may_change(member)) return;
  move(held_, member.id, member.held_until, until);
  member.held_until = until;
}

void MemberTable::set_doom(Member& member, std::optional<Doom> doom) {
  if (!may_change(member)) return;
  const auto deadline_of = [](const std::optional<Doom>& of) {
    return of ? std::optional(of->deadline) : std::nullopt;
  };
  move(doomed_, member.id, deadline_of(member.doom), deadline_of(doom));
  member.doom = std::move(doom);
  mark_unrecorded(member.name);
  ++revision_;
}

std::vector<Member*> MemberTable::doomed() {
  std::vector<Member*> members;
  members.reserve(doomed_.size());
  for (const auto& [deadline, id] : doomed_)
    if (Member* member = known(id)) members.push_back(member);
  return members;
}

std::vector<const Member*> MemberTable::doomed() const {
  std::vector<const Member*> members;
  members.reserve(doomed_.size());
  for (const auto& [deadline, id] : doomed_)
    if (const Member* member = known(id)) members.push_back(member);
  return members;
}

std::optional<Instant> MemberTable::next_doom_after(Instant now) const {
  const auto next = doomed_.upper_bound({now, std::numeric_limits<Id>::max()});
  return next == doomed_.end() ? std::nullopt : std::optional(next->first);
}

Member* MemberTable::take_overdue_join(Instant now) {
  while (!join_deadlines_.empty() && join_deadlines_.begin()->first <= now) {
    Member* member = known(join_deadlines_.begin()->second);
    join_deadlines_.erase(join_deadlines_.begin());
    if (member == nullptr) continue;
    member->join_deadline.reset();
    return member;
  }
  return nullptr;
}

Member* MemberTable::overdue_absent(Instant now) {
  if (absent_.empty() || absent_.begin()->first > now) return nullptr;
  return known(absent_.begin()->second);
}

std::optional<Instant> MemberTable::last_absent_until() const {
  return absent_.empty() ? std::nullopt : std::optional(absent_.rbegin()->first);
}

Member* MemberTable::first_held() {
  return held_.empty() ? nullptr : known(held_.begin()->second);
}

void MemberTable::seen(const Member& member, Instant now, Duration lease) {
  if (may_change(member)) liveness_.seen(member.id, now, lease);
}

std::vector<Member*> MemberTable::take_silent(Instant now) {
  std::vector<Member*> silent;
  for (const Id id : liveness_.take_lost(now))
    if (const auto found = members_.find(id); found != members_.end())
      silent.push_back(&found->second);
  return silent;
}

std::optional<Instant> MemberTable::next_deadline() const {
  std::optional<Instant> next = liveness_.next_deadline();
  for (const Deadlines* deadlines : {&join_deadlines_, &absent_, &held_})
    if (!deadlines->empty() && (!next || deadlines->begin()->first < *next))
      next = deadlines->begin()->first;
  return next;
}

// --- counts --------------------------------------------------------------------------------------

/// The part of one member in counts_.
MemberCounts MemberTable::counts_of(const Member& member) {
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

bool MemberTable::counts_are_right() const {
  MemberCounts scanned;
  for (const auto& [id, member] : members_)
    scanned += counts_of(member);
  return scanned == counts_;
}

}  // namespace muster

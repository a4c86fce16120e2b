// Who is known to the rendezvous, and in which of its lists.

#include <algorithm>

#include "rendezvous/core/check.h"
#include "rendezvous/core/rendezvous.h"

namespace muster {

Rendezvous::MemberId Rendezvous::add_member(const NodeName& name, bool native) {
  const MemberId id = next_id_++;
  Member member{.name = name, .native = native};
  member.order = ++sequence_;
  places_[static_cast<std::size_t>(Place::Away)][member.order] = id;
  members_.emplace(id, std::move(member));
  by_name_[name] = id;
  natives_ += native ? 1 : 0;
  changed();
  return id;
}

void Rendezvous::bind(MemberId id, ConnectionId connection) {
  Member& member = members_.at(id);
  if (member.connection && *member.connection != connection)
    by_connection_.erase(member.connection->value);
  member.connection = connection;
  by_connection_[connection.value] = id;
}

const NodeName* Rendezvous::name_of(ConnectionId connection) const {
  const auto found = by_connection_.find(connection.value);
  return found == by_connection_.end() ? nullptr : &members_.at(found->second).name;
}

Rendezvous::Member* Rendezvous::from(ConnectionId connection, MemberId* id) {
  const auto found = by_connection_.find(connection.value);
  if (found == by_connection_.end()) return nullptr;
  if (id != nullptr) *id = found->second;
  return &members_.at(found->second);
}

void Rendezvous::place(MemberId id, Place where) {
  Member& member = members_.at(id);
  const auto redundant = [&] { return !member.native && member.place == Place::Redundant; };
  if (redundant()) --torch_redundant_;
  places_[static_cast<std::size_t>(member.place)].erase(member.order);
  member.place = where;
  member.order = ++sequence_;
  places_[static_cast<std::size_t>(where)][member.order] = id;
  if (redundant()) ++torch_redundant_;
  changed();
}

void Rendezvous::erase(MemberId id, std::string_view why) {
  place(id, Place::Away);
  const Member& member = members_.at(id);
  // A torchrun node that goes after the run was closed has done its part.
  const bool unfinished = !member.succeeded && !(closed_ && !member.native);
  if (member.last_rank && unfinished && !outcome_)
    lost_.push_back({member.name, *member.last_rank, std::string(why)});
  const auto instance = by_instance_.find(member.instance);
  if (instance != by_instance_.end() && instance->second == id) by_instance_.erase(instance);
  set_join_deadline(id, std::nullopt);
  liveness_.forget(id);
  waiting_.erase(id);
  places_[static_cast<std::size_t>(Place::Away)].erase(member.order);
  by_name_.erase(member.name);
  if (member.connection) by_connection_.erase(member.connection->value);
  natives_ -= member.native ? 1 : 0;
  succeeded_ -= member.succeeded ? 1 : 0;
  members_.erase(id);
  changed();
}

void Rendezvous::gone(MemberId id, RestartCause cause, const std::string& what) {
  const Member& member = members_.at(id);
  // Who has finished, or has closed the run before it went, was not lost.
  const bool lost = member.place == Place::Participant && complete_ && !member.succeeded &&
                    !member.finished && !(closed_ && !member.native);
  const NodeName who = member.name;
  if (!member.succeeded && !outcome_ && !(closed_ && !member.native))
    actions_.push_back(NodeGone{who, member.last_rank, cause, what});
  if (member.succeeded) {  // The result stays, and its place in the round; the node may go.
    liveness_.forget(id);
    if (member.connection) by_connection_.erase(member.connection->value);
    members_.at(id).connection.reset();
    return;
  }
  erase(id, what);
  if (lost && natives_ > 0)
    begin_restart(cause, who, what);
  else if (lost)
    preparing_ = false;  // No muster node is left to be told anything.
  end_if_finished();
}

bool Rendezvous::forsaken() const {
  return closed_ && std::all_of(members_.begin(), members_.end(), [&](const auto& entry) {
           const Member& member = entry.second;
           return member.native && (outcome_ || !member.connection);
         });
}

const NodeName* Rendezvous::torchrun_leader() const {
  if (!complete_) return nullptr;
  for (const auto& [order, id] : at(Place::Participant)) {
    const Member& member = members_.at(id);
    if (member.rank == 0) return member.native ? nullptr : &member.name;
  }
  return nullptr;
}

void Rendezvous::touch(MemberId id) {
  const Member& member = members_.at(id);
  liveness_.seen(id, now_, member.native ? setup_.lease : torch_lease(member));
}

void Rendezvous::set_join_deadline(MemberId id, std::optional<Instant> deadline) {
  Member& member = members_.at(id);
  if (member.join_deadline) join_deadlines_.erase({*member.join_deadline, id});
  member.join_deadline = deadline;
  if (deadline) join_deadlines_.emplace(*deadline, id);
}

}  // namespace muster

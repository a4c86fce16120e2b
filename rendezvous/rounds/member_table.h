// The members of a run: by id, name, instance, connection and place, with the counts and the
// deadlines that the rules ask for with every message.
//
// Pure. It knows nothing of rounds. A Member& stays valid until forget_erased(), also if the member
// is erased meanwhile: then `erased` is set, and the table refuses to change the member. An index
// that names a missing member, or a change of an erased one, is a bug: it is noted
// (take_broken_index()), and the look-up finds nobody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/rounds/liveness.h"
#include "rendezvous/rounds/member.h"
#include "rendezvous/rounds/member_counts.h"

namespace muster {

namespace testing {
struct RendezvousBreaker;
}

class MemberTable {
 public:
  using Id = Liveness::Id;

  /// `recorded`: take_unrecorded() is called from time to time.
  explicit MemberTable(bool recorded) : recorded_(recorded) {}

  // Members.

  /// The name must be free. The new member's place is Away.
  Member& add(const NodeName& name, bool native);
  void erase(Member& member);
  /// Erases all members, also from broken indexes.
  void clear();
  /// Invalidates the references to erased members. Called between two events.
  void forget_erased() { erased_.clear(); }
  std::size_t size() const { return members_.size(); }
  bool empty() const { return members_.empty(); }
  /// Whether a member was ever added, here or at an earlier host.
  bool had_members() const { return sequence_ > 0; }
  void note_earlier_members() { ++sequence_; }
  // All members, in the order in which they were added, as pairs of id and member.
  auto begin() { return members_.begin(); }
  auto end() { return members_.end(); }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }

  // Look-up. Null if there is no such member.

  Member* from(ConnectionId connection) { return writable(std::as_const(*this).from(connection)); }
  const Member* from(ConnectionId connection) const;
  Member* named(const NodeName& name) { return writable(std::as_const(*this).named(name)); }
  const Member* named(const NodeName& name) const;
  Member* of_instance(const std::string& instance);
  const Member* of_instance(const std::string& instance) const;
  /// For an id of a member that was not erased.
  Member* known(Id id) { return writable(std::as_const(*this).known(id)); }
  bool contains(Id id) const { return members_.contains(id); }
  bool has_name(const NodeName& name) const { return by_name_.contains(name); }
  /// The largest local id of the members with this address and pid; `name` must be one of them.
  std::int64_t largest_local_id(const NodeName& name) const;
  /// Whether `wanted` holds for a member at this address.
  template <typename Wanted>
  bool any_at_address(const std::string& addr, const Wanted& wanted) const {
    // The names are ordered by address first.
    for (auto entry = by_name_.lower_bound(first_name_at(addr));
         entry != by_name_.end() && entry->first.addr == addr; ++entry)
      if (const Member* member = known(entry->second); member != nullptr && wanted(*member))
        return true;
    return false;
  }

  // Places: members are in the order in which they got the place.

  std::size_t count(Place where) const { return at(where).size(); }
  /// The first member with this place for which `wanted` holds; null if there is none.
  template <typename Wanted>
  const Member* first_in(Place where, const Wanted& wanted) const {
    for (const auto& [order, id] : at(where))
      if (const Member* member = known(id); member != nullptr && wanted(*member)) return member;
    return nullptr;
  }
  template <typename Wanted>
  Member* first_in(Place where, const Wanted& wanted) {
    return writable(std::as_const(*this).first_in(where, wanted));
  }
  Member* first_in(Place where) {
    return first_in(where, [](const Member&) { return true; });
  }
  /// `visit` must not move, add or erase a member.
  template <typename Visit>
  void for_each_in(Place where, const Visit& visit) const {
    for (const auto& [order, id] : at(where))
      if (const Member* member = known(id); member != nullptr) visit(*member);
  }
  /// The members with this place, for loops that move or erase members.
  std::vector<Member*> list(Place where);

  // Changes.

  void set_place(Member& member, Place where);
  /// The member has this connection only, and is not absent.
  void bind(Member& member, ConnectionId connection);
  void unbind(Member& member);
  void set_instance(Member& member, const std::string& instance);
  void set_last_rank(Member& member, std::optional<int> rank);
  void set_succeeded(Member& member, bool succeeded);

  // Deadlines and signs of life.

  void set_join_deadline(Member& member, std::optional<Instant> deadline);
  void set_absent(Member& member, std::optional<Instant> until, Instant now);
  void set_held(Member& member, std::optional<Instant> until);
  void set_doom(Member& member, std::optional<Doom> doom);
  /// The members that will go, the earliest deadline first.
  std::vector<Member*> doomed();
  std::vector<const Member*> doomed() const;
  std::size_t doomed_count() const { return doomed_.size(); }
  /// The first deadline of a doomed member after `now`.
  std::optional<Instant> next_doom_after(Instant now) const;
  /// Clears the first join deadline that is over, and returns the member.
  Member* take_overdue_join(Instant now);
  /// The member whose time without a connection was over first; null if there is none.
  Member* overdue_absent(Instant now);
  std::optional<Instant> last_absent_until() const;
  /// The member that is held back for the shortest time; null if none is held back.
  Member* first_held();
  std::size_t held() const { return held_.size(); }
  void seen(const Member& member, Instant now, Duration lease);
  void stop_watching(const Member& member) { liveness_.remove(member.id); }
  bool is_watched(const Member& member, Instant now) const {
    return liveness_.standing(member.id, now) != Liveness::Standing::Unknown;
  }
  const Liveness& liveness() const { return liveness_; }
  /// The members whose lease is over. They are watched no longer.
  std::vector<Member*> take_silent(Instant now);
  /// The first of all these deadlines.
  std::optional<Instant> next_deadline() const;

  const MemberCounts& counts() const { return counts_; }
  /// Whether counts() agrees with a scan of all members. For tests: it is slow.
  bool counts_are_right() const;

  // What is dirty.

  /// Changes with every change of a place, and with every member that comes or goes.
  std::uint64_t revision() const { return revision_; }
  /// The node's record may have changed. set_place() and erase() call this themselves.
  void mark_unrecorded(const NodeName& name) {
    if (recorded_) unrecorded_.insert(name);
  }
  std::set<NodeName> take_unrecorded() { return std::exchange(unrecorded_, {}); }
  /// Whether a broken index was noticed since the last call.
  bool take_broken_index() { return std::exchange(broken_index_, false); }

 private:
  friend struct testing::RendezvousBreaker;
  using Deadlines = std::set<std::pair<Instant, Id>>;

  static NodeName first_name_at(const std::string& addr);
  static MemberCounts counts_of(const Member& member);
  Member* writable(const Member* member) { return const_cast<Member*>(member); }
  const Member* known(Id id) const;
  bool may_change(const Member& member) const;
  /// Changes counted fields of a member, and updates counts_.
  template <typename Change>
  void change(Member& member, const Change& change_fields) {
    counts_ -= counts_of(member);
    change_fields();
    counts_ += counts_of(member);
  }
  static void move(Deadlines& deadlines, Id id, const std::optional<Instant>& from,
                   const std::optional<Instant>& to);
  std::map<std::uint64_t, Id>& at(Place where) { return places_[static_cast<std::size_t>(where)]; }
  const std::map<std::uint64_t, Id>& at(Place where) const {
    return places_[static_cast<std::size_t>(where)];
  }

  std::map<Id, Member> members_;
  std::vector<std::map<Id, Member>::node_type> erased_;  // Since forget_erased().
  std::map<NodeName, Id> by_name_;
  std::map<std::string, Id> by_instance_;
  std::map<std::uint32_t, Id> by_connection_;
  std::array<std::map<std::uint64_t, Id>, kPlaces> places_;
  MemberCounts counts_;
  std::uint64_t sequence_ = 0;
  Id next_id_ = 0;
  Liveness liveness_;
  Deadlines join_deadlines_;
  Deadlines absent_;
  Deadlines held_;
  Deadlines doomed_;
  bool recorded_ = false;
  std::set<NodeName> unrecorded_;
  std::uint64_t revision_ = 0;
  mutable bool broken_index_ = false;
};

}  // namespace muster

// The table of a run's members: indexes, places, counts, deadlines, and what is dirty.

#include "rendezvous/rounds/member_table.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

struct MemberTableTest {
  MemberTable table{/*recorded=*/true};
  Instant now{};

  Member& add(const std::string& addr, std::int64_t local_id = 0, bool native = true) {
    return table.add({addr, 1, local_id}, native);
  }
  std::vector<std::string> at(Place where) {
    std::vector<std::string> addresses;
    table.for_each_in(where, [&](const Member& member) { addresses.push_back(member.name.addr); });
    return addresses;
  }
};

TEST_CASE_METHOD(MemberTableTest, "member table: each look-up finds the member until it is erased",
                 "[unit][rendezvous]") {
  Member& member = add("a");
  table.bind(member, {7});
  table.set_instance(member, "i");
  CHECK(table.from({7}) == &member);
  CHECK(table.named({"a", 1, 0}) == &member);
  CHECK(table.of_instance("i") == &member);
  CHECK(table.first_in(Place::Away) == &member);
  table.erase(member);
  CHECK(table.from({7}) == nullptr);
  CHECK(table.named({"a", 1, 0}) == nullptr);
  CHECK(table.of_instance("i") == nullptr);
  CHECK(table.first_in(Place::Away) == nullptr);
  CHECK(table.empty());
  CHECK_FALSE(table.take_broken_index());
}

TEST_CASE_METHOD(MemberTableTest, "member table: a member has its newest connection only",
                 "[unit][rendezvous]") {
  Member& member = add("a");
  table.bind(member, {7});
  table.set_absent(member, now + 1s, now);
  table.bind(member, {8});
  CHECK(table.from({7}) == nullptr);
  CHECK(table.from({8}) == &member);
  CHECK_FALSE(member.absent_until);
  CHECK(table.counts().connected == 1);
  table.unbind(member);
  CHECK(table.from({8}) == nullptr);
  CHECK(table.counts().connected == 0);
}

TEST_CASE_METHOD(MemberTableTest,
                 "member table: an instance that has moved on is not erased with the old member",
                 "[unit][rendezvous]") {
  Member& old = add("a");
  Member& successor = add("b");
  table.set_instance(old, "i");
  table.set_instance(successor, "i");
  table.erase(old);
  CHECK(table.of_instance("i") == &successor);
}

TEST_CASE_METHOD(MemberTableTest,
                 "member table: a reference outlives its member until the end of the event",
                 "[unit][rendezvous]") {
  Member& member = add("a");
  table.set_join_deadline(member, now + 1s);
  table.erase(member);
  CHECK(member.erased);
  CHECK(member.name.addr == "a");
  CHECK_FALSE(table.next_deadline());
  // To change it is a bug, which is noted and has no other effect.
  CHECK_FALSE(table.take_broken_index());
  table.set_place(member, Place::Participant);
  CHECK(table.count(Place::Participant) == 0);
  CHECK(table.take_broken_index());
  CHECK_FALSE(table.take_broken_index());
  table.seen(member, now, 1s);
  CHECK_FALSE(table.next_deadline());
  CHECK(table.take_broken_index());
  CHECK(table.counts_are_right());
}

TEST_CASE_METHOD(MemberTableTest, "member table: members stand in the order in which they came",
                 "[unit][rendezvous]") {
  Member& a = add("a");
  Member& b = add("b");
  Member& c = add("c");
  for (Member* member : {&c, &a, &b})
    table.set_place(*member, Place::Waiting);
  CHECK(at(Place::Waiting) == std::vector<std::string>{"c", "a", "b"});
  table.set_place(c, Place::Waiting);
  CHECK(at(Place::Waiting) == std::vector<std::string>{"a", "b", "c"});
  CHECK(table.list(Place::Waiting) == std::vector<Member*>{&a, &b, &c});
  const auto found = table.first_in(Place::Waiting, [](const Member& m) { return m.id > 0; });
  CHECK(found == &b);
}

TEST_CASE_METHOD(MemberTableTest, "member table: the counts follow each change",
                 "[unit][rendezvous]") {
  Member& a = add("a");
  Member& torch = add("t", 0, false);
  CHECK(table.counts().natives == 1);
  table.set_place(a, Place::Participant);
  table.set_last_rank(a, 0);
  table.set_absent(a, now + 1s, now);
  CHECK(table.counts() == MemberCounts{.natives = 1, .working = 1, .returned = 1, .absent = 1});
  table.set_succeeded(a, true);
  table.set_place(torch, Place::Redundant);
  CHECK(
      table.counts() ==
      MemberCounts{.natives = 1, .succeeded = 1, .torch_redundant = 1, .returned = 1, .absent = 1});
  CHECK(table.counts_are_right());
  a.succeeded = false;  // Behind the table's back.
  CHECK_FALSE(table.counts_are_right());
}

TEST_CASE_METHOD(MemberTableTest, "member table: the next deadline is the first of all kinds",
                 "[unit][rendezvous]") {
  Member& a = add("a");
  Member& b = add("b");
  CHECK_FALSE(table.next_deadline());
  table.seen(a, now, 9s);
  CHECK(table.next_deadline() == now + 9s);
  table.set_join_deadline(a, now + 8s);
  CHECK(table.next_deadline() == now + 8s);
  table.set_absent(b, now + 7s, now);
  CHECK(table.next_deadline() == now + 7s);
  CHECK(table.last_absent_until() == now + 7s);
  table.set_held(b, now + 6s);
  CHECK(table.next_deadline() == now + 6s);
  CHECK(table.first_held() == &b);
  table.set_held(b, std::nullopt);
  CHECK(table.first_held() == nullptr);
  CHECK(table.overdue_absent(now + 6s) == nullptr);
  CHECK(table.overdue_absent(now + 7s) == &b);
  table.set_absent(b, std::nullopt, now);
  CHECK(table.take_overdue_join(now + 7s) == nullptr);
  CHECK(table.take_overdue_join(now + 8s) == &a);
  CHECK_FALSE(a.join_deadline);
  CHECK(table.take_overdue_join(now + 8s) == nullptr);
  CHECK(table.take_silent(now + 9s) == std::vector<Member*>{&a});
  CHECK_FALSE(table.next_deadline());
}

TEST_CASE_METHOD(MemberTableTest, "member table: an absence begins once", "[unit][rendezvous]") {
  Member& a = add("a");
  table.set_absent(a, now + 5s, now + 1s);
  table.set_absent(a, now + 9s, now + 2s);
  CHECK(a.absent_since == now + 1s);
  CHECK(table.next_deadline() == now + 9s);
}

TEST_CASE_METHOD(MemberTableTest, "member table: neighbours at one address are found by it",
                 "[unit][rendezvous]") {
  add("a", 4);
  add("a", 9);
  add("b", 12);
  CHECK(table.largest_local_id({"a", 1, 4}) == 9);
  CHECK(table.largest_local_id({"b", 1, 12}) == 12);
  CHECK(table.any_at_address("a", [](const Member& m) { return m.name.local_id == 9; }));
  CHECK_FALSE(table.any_at_address("a", [](const Member& m) { return m.name.local_id == 12; }));
}

TEST_CASE_METHOD(MemberTableTest, "member table: it knows which records may have changed",
                 "[unit][rendezvous]") {
  const auto before = table.revision();
  Member& a = add("a");
  CHECK(table.revision() != before);
  CHECK(table.take_unrecorded().empty());  // A node without a place in a round has no record.
  const auto placed = table.revision();
  table.set_place(a, Place::Participant);
  CHECK(table.revision() != placed);
  CHECK(table.take_unrecorded() == std::set<NodeName>{a.name});
  CHECK(table.take_unrecorded().empty());
  table.erase(a);
  CHECK(table.take_unrecorded() == std::set<NodeName>{a.name});
  MemberTable unrecorded{/*recorded=*/false};
  unrecorded.set_place(unrecorded.add({"b", 1, 0}, true), Place::Participant);
  CHECK(unrecorded.take_unrecorded().empty());
}

TEST_CASE_METHOD(MemberTableTest, "member table: clear() forgets all, and leaves nothing broken",
                 "[unit][rendezvous]") {
  Member& a = add("a");
  table.bind(a, {1});
  table.seen(a, now, 1s);
  table.clear();
  CHECK(a.erased);
  CHECK(table.empty());
  CHECK(table.from({1}) == nullptr);
  CHECK_FALSE(table.next_deadline());
  CHECK(table.counts_are_right());
  CHECK(table.had_members());
  CHECK_FALSE(table.take_broken_index());
}

}  // namespace
}  // namespace muster::testing

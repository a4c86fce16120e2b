// A round of an earlier host while its nodes resume.

#include "rendezvous/rounds/recovery.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

NodeResumed resumed(int rank, int world = 3) {
  NodeResumed event;
  event.join.last_round = 4;
  event.join.generation = 9;
  event.join.lease = 5s;
  event.group_rank = rank;
  event.group_world_size = world;
  return event;
}

struct RecoveryTest {
  Instant begin{};
  Recovery recovery{resumed(0), 5s, begin};

  void add(Liveness::Id id, const NodeResumed& event) {
    recovery.add(id, {"node", 1, static_cast<std::int64_t>(id)}, event);
  }
};

TEST_CASE_METHOD(RecoveryTest, "recovery: the first node says which round it is",
                 "[unit][rendezvous]") {
  CHECK(recovery.round() == 4);
  CHECK(recovery.generation() == 9);
  CHECK(recovery.world() == 3);
  CHECK(recovery.is_of(resumed(2)));
  CHECK_FALSE(recovery.is_of(resumed(2, 4)));
  NodeResumed other = resumed(1);
  other.join.generation = 8;
  CHECK_FALSE(recovery.is_of(other));
  other = resumed(1);
  other.join.last_round = 5;
  CHECK_FALSE(recovery.is_of(other));
  // The life of the host is not compared.
  other = resumed(1);
  other.join.life = 77;
  CHECK(recovery.is_of(other));
  CHECK(recovery.was_in(other.join));
  other.join.generation = 8;
  CHECK_FALSE(recovery.was_in(other.join));
}

TEST_CASE_METHOD(RecoveryTest, "recovery: it is whole when each rank is there",
                 "[unit][rendezvous]") {
  CHECK(recovery.missing_ranks() == " 0 1 2");
  add(1, resumed(0));
  add(2, resumed(2));
  CHECK_FALSE(recovery.is_whole());
  CHECK(recovery.missing_ranks() == " 1");
  add(3, resumed(1));
  CHECK(recovery.is_whole());
  CHECK(recovery.missing_ranks().empty());
  recovery.remove(2);
  CHECK_FALSE(recovery.is_whole());
  CHECK(recovery.missing_ranks() == " 2");
}

TEST_CASE("recovery: of many missing ranks it names the first eight", "[unit][rendezvous]") {
  Recovery recovery(resumed(0, 9), 5s, Instant{});
  CHECK(recovery.missing_ranks() == " 0 1 2 3 4 5 6 7 and more");
  recovery.add(1, {}, resumed(8, 9));
  CHECK(recovery.missing_ranks() == " 0 1 2 3 4 5 6 7");
}

TEST_CASE_METHOD(RecoveryTest, "recovery: a rank belongs to one member, and a member to one rank",
                 "[unit][rendezvous]") {
  CHECK_FALSE(recovery.is_taken(1, std::nullopt));
  add(1, resumed(1));
  CHECK(recovery.is_taken(1, std::nullopt));
  CHECK(recovery.is_taken(1, 2));
  CHECK_FALSE(recovery.is_taken(1, 1));
  add(1, resumed(2));
  CHECK_FALSE(recovery.is_taken(1, std::nullopt));
  CHECK(recovery.nodes().size() == 1);
}

TEST_CASE_METHOD(RecoveryTest, "recovery: each node extends the wait by its lease, up to a limit",
                 "[unit][rendezvous]") {
  CHECK(recovery.deadline() == begin + 6s);
  recovery.extend(5s, begin + 3s);
  CHECK(recovery.deadline() == begin + 9s);
  recovery.extend(20s, begin + 4s);
  CHECK(recovery.deadline() == begin + 25s);
  recovery.extend(1s, begin + 5s);  // The longest lease counts.
  CHECK(recovery.deadline() == begin + 26s);
  recovery.extend(20s, begin + 139s);
  CHECK(recovery.deadline() == begin + 140s);  // The lease and 2 minutes.
  recovery.extend(std::chrono::hours(10), begin + 1s);
  CHECK(recovery.lease() == std::chrono::hours(1));
}

TEST_CASE_METHOD(RecoveryTest, "recovery: it keeps what a host must know to go on",
                 "[unit][rendezvous]") {
  NodeResumed first = resumed(1);
  first.restart_count = 2;
  first.failure = "rank 3 exited with 1";
  add(1, first);
  NodeResumed second = resumed(0);
  second.restart_count = 1;
  second.failure = "rank 0 exited with 2";
  second.store = StoreAddress{"10.0.0.1", 4000};
  second.workers = WorkerRanks{.world_size = 6};
  add(2, second);
  NodeResumed third = resumed(2);
  third.store = StoreAddress{"10.0.0.3", 4000};  // Only rank 0 has the store.
  add(3, third);
  CHECK(recovery.restart_count() == 2);
  REQUIRE(recovery.failure());
  CHECK(recovery.failure()->who.local_id == 1);
  CHECK(recovery.failure()->what == "rank 3 exited with 1");
  REQUIRE(recovery.store());
  CHECK(recovery.store()->addr == "10.0.0.1");
  CHECK(recovery.nodes().at(0).workers->world_size == 6);
}

}  // namespace
}  // namespace muster::testing

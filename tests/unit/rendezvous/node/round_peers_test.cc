#include "rendezvous/node/round_peers.h"

#include <chrono>

#include <catch2/catch.hpp>

using namespace muster;
using namespace std::chrono_literals;

namespace {

struct PeersTest {
  RoundPeers peers;
  Instant now = Instant{} + 1h;

  std::optional<Instant> whole_at(int group_rank, int group_world_size, bool may_grow = true) {
    RoundComplete round;
    round.group_rank = {group_rank};
    round.group_world_size = group_world_size;
    return peers.whole_at(round, may_grow, 5s, now);
  }
};

}  // namespace

TEST_CASE_METHOD(PeersTest, "round peers: rank 0 knows the round to be whole when all have asked",
                 "[unit][rendezvous]") {
  peers.asked_by(1, now);
  CHECK_FALSE(whole_at(0, 3));
  peers.asked_by(2, now + 1s);
  CHECK(whole_at(0, 3) == now);  // The oldest question counts.
  peers.asked_by(1, now + 2s);
  CHECK(whole_at(0, 3) == now + 1s);
  now += 6s;
  CHECK_FALSE(whole_at(0, 3));  // That is a lease ago.
  peers.forgive(now);
  CHECK(whole_at(0, 3) == now);
  peers.begin_round();
  CHECK_FALSE(whole_at(0, 3));
}

TEST_CASE_METHOD(PeersTest, "round peers: the other nodes believe the latest answer of rank 0",
                 "[unit][rendezvous]") {
  CHECK_FALSE(whole_at(1, 3));
  peers.answered(now);
  peers.answered(now - 1s);
  CHECK(whole_at(1, 3) == now);
  now += 5s;
  CHECK_FALSE(whole_at(1, 3));
}

TEST_CASE_METHOD(PeersTest, "round peers: a single node is whole if the job cannot grow",
                 "[unit][rendezvous]") {
  CHECK(whole_at(0, 1, false) == now);
  CHECK_FALSE(whole_at(0, 1, true));
}

TEST_CASE_METHOD(PeersTest, "round peers: a tenth of a lease lies between two questions",
                 "[unit][rendezvous]") {
  CHECK(peers.take_question(2s, now));
  CHECK(peers.next_question() == now + 200ms);
  CHECK_FALSE(peers.take_question(2s, now + 199ms));
  CHECK(peers.take_question(1ms, now + 200ms));
  CHECK(peers.next_question() == now + 300ms);  // At least 100 ms,
  CHECK(peers.take_question(1h, now + 300ms));
  CHECK(peers.next_question() == now + 800ms);  // and at most 500 ms.
}

TEST_CASE_METHOD(PeersTest, "round peers: only changes are reported", "[unit][rendezvous]") {
  CHECK_FALSE(peers.set_answer(std::nullopt));
  CHECK(peers.set_answer(now));
  CHECK_FALSE(peers.set_answer(now));
  CHECK(peers.has_answer());
  CHECK(peers.set_answer(std::nullopt));
  CHECK(peers.begin_alone());
  CHECK_FALSE(peers.begin_alone());
  peers.end_alone();
  CHECK(peers.begin_alone());
}

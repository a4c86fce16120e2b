// A node's half of --restart-policy: how far its workers have come.

#include "tests/unit/rendezvous/node/native_participant_fixture.h"

namespace muster::testing {
namespace {

struct ProgressNode : ParticipantTest {
  Participant::Actions connect_to(bool takes_progress) {
    return feed(Participant::Connected{
        {.lease = 5s, .resumes = true, .outlives_nodes = true, .takes_progress = takes_progress}});
  }
  void in_round(std::optional<std::int64_t> best_step = {}, bool takes_progress = true) {
    if (!connected) connect_to(takes_progress);
    connected = true;
    feed(Participant::JoinAsked{});
    RoundComplete round{.round = ++number, .group_world_size = 2, .life = 7, .generation = 40};
    round.best_step = best_step;
    round.workers = WorkerRanks{};
    round.store = StoreAddress{"store", 29500};
    REQUIRE(has<Participant::BeginRound>(hear(round)));
  }
  std::vector<NodeProgressed> told(std::optional<std::int64_t> step) {
    return sent<NodeProgressed>(feed(Participant::ProgressMade{step}));
  }
  bool connected = false;
  std::int64_t number = 3;
};

TEST_CASE_METHOD(ProgressNode, "progress: the first step beyond the best one is told at once",
                 "[unit][rendezvous]") {
  in_round(100);
  CHECK(told(99).empty());
  CHECK(told(100).empty());
  const auto first = told(101);
  REQUIRE(first.size() == 1);
  CHECK(first[0].round == 4);
  CHECK(first[0].step == 101);
  CHECK(told(102).empty());
}

TEST_CASE_METHOD(ProgressNode, "progress: progress without a number is told once a round",
                 "[unit][rendezvous]") {
  in_round();
  CHECK(told({}).size() == 1);
  CHECK(told({}).empty());
  CHECK(told(5).empty());
}

TEST_CASE_METHOD(ProgressNode, "progress: the last step is told before a failure and before a join",
                 "[unit][rendezvous]") {
  in_round();
  told(1);
  told(7);
  const auto actions = feed(Participant::WorkersHaveFailed{"rank 0 exited with 3", true});
  REQUIRE(sent<NodeProgressed>(actions).size() == 1);
  CHECK(sent<NodeProgressed>(actions)[0].step == 7);
  REQUIRE(sent<WorkersFailed>(actions).size() == 1);
  CHECK(sent<WorkersFailed>(actions)[0].hung);
  told(8);  // A worker that is being stopped.
  const auto joined = feed(Participant::JoinAsked{});
  REQUIRE(sent<NodeProgressed>(joined).size() == 1);
  CHECK(sent<NodeProgressed>(joined)[0].step == 8);
  CHECK(sent<NodeJoined>(joined).size() == 1);
}

TEST_CASE_METHOD(ProgressNode, "progress: a resume says how far the workers are",
                 "[unit][rendezvous]") {
  in_round(3);
  feed(Participant::ConnectionBroke{"gone"});
  CHECK(told(4).empty());
  const auto resumed = sent<NodeResumed>(connect_to(true));
  REQUIRE(resumed.size() == 1);
  CHECK(resumed[0].progressed);
  CHECK(resumed[0].step == 4);
}

TEST_CASE_METHOD(ProgressNode, "progress: an older host is told nothing", "[unit][rendezvous]") {
  in_round({}, false);
  CHECK(told(1).empty());
  CHECK(sent<NodeProgressed>(feed(Participant::WorkersHaveFailed{"x"})).empty());
}

TEST_CASE_METHOD(ProgressNode, "progress: each round begins anew", "[unit][rendezvous]") {
  in_round();
  told(50);
  feed(Participant::WorkersHaveFailed{"x"});
  in_round(50);
  CHECK(told(10).empty());
  CHECK(told(51).size() == 1);
}

}  // namespace
}  // namespace muster::testing

// Runs with nodes of both kinds.

#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {
namespace {

/// The muster client 1 and the torchrun client 2 in round 0, in a run that needs only one node.
struct MixedRoundTest : RunServiceTest {
  MixedRoundTest() {
    hello(1);
    NodeJoined joined;
    joined.name = {"host1", 1, 0};
    joined.run = {.min_nodes = 1, .max_nodes = 2, .max_restarts = 1};
    REQUIRE(tell(1, joined).close.empty());
    const std::string seen = begin(2);
    (void)text(compare_set(2, seen, joined_by(2, seen)));
    REQUIRE(messages<PrepareStore>().size() == 1);
    tell(1, StoreReady{{}, 0, "localhost", 29500});
  }
  void pass(Duration time) {
    for (const Instant end = now + time; now < end;) {
      tell(1, KeptAlive{});
      service->time_passed(at(1s));
    }
  }
  static constexpr std::string_view kBarrier =
      "/torch.rendezvous.job.0/torchelastic/agent/terminal_state/last_member";
};

TEST_CASE_METHOD(MixedRoundTest, "runs: rank 0 learns which clients read the store's address",
                 "[unit][rendezvous]") {
  const auto effects = take();
  REQUIRE(effects.size() == 1);
  const auto& send = std::get<SendNative>(effects[0]);
  CHECK(std::holds_alternative<RoundComplete>(send.message));
  CHECK(send.readers == std::vector<ConnectionId>{{2}});
}

TEST_CASE_METHOD(MixedRoundTest, "runs: a torchrun node that waits for a key lives",
                 "[unit][rendezvous]") {
  take();
  SECTION("it is silent for longer than a torchrun node may be") {
    service->waits({2}, "/torch.rendezvous.job.0/MASTER_ADDR", at());
    pass(100s);
    CHECK(take().empty());
    const NodeName node{"host2", 2, 0};
    const auto fresh = [&] {
      return at().wall.microseconds -
             state(std::string(service->read_state({9}, kKey, at()).view()))
                 .last_heartbeats.find(node)
                 ->microseconds;
    };
    CHECK(fresh() < 5'000'000);
    service->waits({2}, std::nullopt, at());
    CHECK(fresh() < 5'000'000);
    pass(14s);
    CHECK(take().empty());
    pass(2s);
  }
  SECTION("the same without a wait") {
    pass(15s);
  }
  const auto lost = messages<RestartRound>();
  REQUIRE(lost.size() == 1);
  CHECK(lost.at(1).cause == RestartCause::NodeLost);
}

TEST_CASE_METHOD(MixedRoundTest, "runs: a torchrun node that has finished holds up no restart",
                 "[unit][rendezvous]") {
  take();
  const auto released = [&] {
    for (const RunEffect& effect : take())
      if (const auto* open = std::get_if<OpenBarrier>(&effect)) return open->key == kBarrier;
    return false;
  };
  const bool before = GENERATE(true, false);
  if (before) service->waits({2}, kBarrier, at());
  pass(100s * (before ? 1 : 0));
  CHECK_FALSE(released());
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  if (!before) {
    CHECK_FALSE(released());
    service->waits({2}, kBarrier, at());
  }
  CHECK(released());
  CHECK(service->rendezvous("job")->round() == 1);
  // A torchrun node closes the run at its end. The run stays open for the other nodes.
  const auto shown = [&] { return std::string(service->read_state({9}, kKey, at()).view()); };
  RendezvousState closed = state(shown());
  closed.closed = true;
  const std::string desired = encode_state(closed);
  CHECK(text(compare_set(2, shown(), desired)) == desired);
  CHECK_FALSE(state(shown()).closed);
}

TEST_CASE_METHOD(MixedRoundTest, "runs: a torchrun node of a failed job does not wait at its end",
                 "[unit][rendezvous]") {
  take();
  const auto opened = [&] {
    int times = 0;
    for (const RunEffect& effect : take())
      if (const auto* open = std::get_if<OpenBarrier>(&effect)) times += open->key == kBarrier;
    return times;
  };
  const bool before = GENERATE(true, false);
  if (before) service->waits({2}, kBarrier, at());
  CHECK(opened() == 0);
  tell(1, NodeFinished{{}, 0, false, "rank 0 exited with 1"});
  if (!before) {
    CHECK(opened() == 0);
    service->waits({2}, kBarrier, at());
  }
  CHECK(opened() == 1);
}

TEST_CASE_METHOD(MixedRoundTest, "runs: a torchrun node that has finished may go",
                 "[unit][rendezvous]") {
  take();
  service->waits({2}, kBarrier, at());
  pass(300s);
  service->waits({2}, std::nullopt, at());  // torchrun waits no longer than 300 s, and ends.
  const auto shown = [&] { return std::string(service->read_state({2}, kKey, at()).view()); };
  RendezvousState closed = state(shown());
  closed.closed = true;
  const std::string desired = encode_state(closed);
  SECTION("muster's workers go on, and may restart") {
    CHECK(text(compare_set(2, shown(), desired)) == desired);
    service->disconnect({2}, at());
    CHECK(take().empty());
    tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
    CHECK(messages<RestartRound>().size() == 1);
  }
  SECTION("when muster's have ended, too, the run is over") {
    tell(1, NodeFinished{{}, 0, true, ""});
    CHECK(text(compare_set(2, shown(), desired)) == desired);
    CHECK(state(shown()).closed);
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: with a token only a node of the run closes it",
                 "[unit][rendezvous]") {
  reset({.only_nodes_close = true});
  const std::string empty = begin(5);
  const std::string joined = text(compare_set(5, empty, joined_by(5, empty)));
  REQUIRE(state(joined).participants.size() == 1);
  const auto shown = [&](std::uint32_t client) {
    return std::string(service->read_state({client}, kKey, at()).view());
  };
  RendezvousState closed = state(shown(6));
  closed.closed = true;
  const std::string desired = encode_state(closed);
  CHECK(text(compare_set(6, shown(6), desired)) == desired);  // It is told that it has closed it.
  CHECK_FALSE(state(shown(5)).closed);
  CHECK(text(compare_set(5, shown(5), desired)) == desired);
  CHECK(state(shown(6)).closed);
}

TEST_CASE_METHOD(RunServiceTest, "runs: a torchrun node may not change a muster node",
                 "[unit][rendezvous]") {
  two_in_a_round();
  const auto shown = [&] {
    return state(std::string(service->read_state({9}, kKey, at()).view()));
  };
  const RendezvousState before = shown();
  const NodeName victim{"host1", 1, 0};
  REQUIRE(before.participants.contains(victim));
  RendezvousState wish = before;
  SECTION("it removes the muster node") {
    wish.participants.erase(victim);
    wish.last_heartbeats.erase(victim);
  }
  SECTION("it removes the heartbeat") {
    wish.last_heartbeats.erase(victim);
  }
  SECTION("it sets an old heartbeat") {
    wish.last_heartbeats.set(victim, {1});
  }
  SECTION("it puts the muster node on the wait list") {
    wish.wait_list.insert(victim);
  }
  SECTION("it moves the muster node to the redundancy list") {
    wish.participants.erase(victim);
    wish.redundancy_list.insert(victim);
  }
  SECTION("it gives the muster node another rank") {
    wish.participants.set(victim, 1);
    wish.participants.set({"host2", 2, 0}, 0);
  }
  const auto outcome = compare_set(9, encode_state(before), encode_state(wish));
  CHECK(std::holds_alternative<StateRefused>(outcome));
  const RendezvousState after = shown();
  CHECK(after.participants == before.participants);
  CHECK(after.wait_list.empty());
  CHECK(after.redundancy_list.empty());
  CHECK(after.last_heartbeats.find(victim)->microseconds > 1);
  for (const RunEffect& effect : take())
    CHECK_FALSE(std::holds_alternative<SendNative>(effect));
}

}  // namespace
}  // namespace muster::testing

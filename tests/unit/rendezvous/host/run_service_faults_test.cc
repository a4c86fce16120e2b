// No order of events ends a run service. A broken invariant ends only its own run.

#include <array>
#include <functional>

#include "tests/unit/rendezvous/host/rendezvous_breaker.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE_METHOD(RunServiceTest,
                 "runs: only the run that breaks an invariant ends, and it is named",
                 "[unit][rendezvous]") {
  for (const std::uint32_t client : {1, 2}) {
    hello(client);
    join(client, 2);
  }
  hello(3, "other");
  join(3, 1);
  take();
  RendezvousBreaker::remove_member(*service->rendezvous("job"), {1});
  tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
  const auto ended = messages<RunEnded>();
  REQUIRE(ended.size() == 1);
  CHECK_FALSE(ended.at(2).succeeded);
  CHECK_THAT(notes, Catch::Contains("run_broken run=job invariant=\"an index names a member"));

  tell(3, StoreReady{{}, 0, "10.0.0.3", 29500});
  CHECK(messages<RoundComplete>().size() == 1);
  // The id can be used again.
  hello(4);
  join(4, 1);
  CHECK(messages<PrepareStore>().size() == 1);
}

TEST_CASE_METHOD(RunServiceTest, "runs: a refused join is not logged as one",
                 "[unit][rendezvous]") {
  hello(1);
  join(1, 2);
  hello(2);
  join(2, 3);
  CHECK(messages<JoinRefused>().size() == 1);
  CHECK_THAT(notes, Catch::Contains("node=host1_1_0"));
  CHECK_THAT(notes, !Catch::Contains("node=host2_2_0"));
}

/// The muster clients 1 and 2 and the torchrun client 3, in a round that rank 0 (client 1)
/// prepares.
struct PreparingTest : RunServiceTest {
  void begin_preparing(int max_restarts) {
    reset({});
    now = Instant(1h);
    for (const std::uint32_t client : {1, 2}) {
      hello(client);
      NodeJoined joined;
      joined.name = {"host" + std::to_string(client), client, 0};
      joined.run = {.min_nodes = 2, .max_nodes = 3, .max_restarts = max_restarts};
      REQUIRE(tell(client, joined).close.empty());
    }
    const std::string seen = begin(3);
    (void)text(compare_set(3, seen, joined_by(3, seen)));
    REQUIRE(messages<PrepareStore>().size() == 1);
  }
  bool is_here(std::uint32_t client) const { return !gone.contains(client); }
  void lose(std::uint32_t client) {
    if (gone.insert(client).second) service->disconnect({client}, at());
  }
  void says(std::uint32_t client, const NativeRequest& request) {
    if (is_here(client)) tell(client, request);
  }
  void propose(const std::function<void(RendezvousState&)>& change) {
    if (!is_here(3)) return;
    const std::string seen(service->read_state({3}, kKey, at()).view());
    RendezvousState next = state(seen);
    change(next);
    compare_set(3, seen, encode_state(next));
  }
  void wait_at_end() {
    if (is_here(3)) service->waits({3}, kBarrier, at());
  }
  std::vector<std::function<void()>> events() {
    return {
        [this] {
          says(2, WorkersFailed{{}, 0, "rank 1 exited with 1"});
        },
        [this] {
          says(2, RestartRequested{{}, "asked"});
        },
        [this] {
          says(2, NodeFinished{{}, 0, true, ""});
        },
        [this] {
          says(2, NodeFinished{{}, 0, false, "rank 1 exited with 1"});
        },
        [this] {
          says(1, NodeFinished{{}, 0, true, ""});
        },
        [this] { says(2, NodeLeft{}); },
        [this] { lose(2); },
        [this] { lose(3); },
        [this] { wait_at_end(); },
        [this] { propose([](RendezvousState& next) { next.closed = true; }); },
        [this] {
          propose([](RendezvousState& next) {
            next.participants.erase({"host3", 3, 0});
            next.last_heartbeats.erase({"host3", 3, 0});
          });
        },
        [this] { service->time_passed(at(60s)); },
        [this] { join_if_here(2, 0); },
    };
  }
  void join_if_here(std::uint32_t client, std::int64_t last_round) {
    if (!is_here(client)) return;
    NodeJoined joined;
    joined.name = {"host" + std::to_string(client), client, 0};
    joined.run = {.min_nodes = 2, .max_nodes = 3, .max_restarts = restarts};
    joined.last_round = last_round;
    tell(client, joined);
  }
  static constexpr std::string_view kBarrier =
      "/torch.rendezvous.job.0/torchelastic/agent/terminal_state/last_member";
  std::set<std::uint32_t> gone;
  int restarts = 0;
};

TEST_CASE_METHOD(PreparingTest,
                 "runs: no sequence of three events while a round is prepared breaks a run",
                 "[unit][rendezvous]") {
  const std::size_t kinds = events().size();
  for (restarts = 0; restarts < 2; ++restarts)
    for (std::size_t sequence = 0; sequence < kinds * kinds * (restarts == 0 ? kinds : 1);
         ++sequence) {
      INFO("restarts " << restarts << ", events " << sequence / kinds / kinds << ", "
                       << sequence / kinds % kinds << ", " << sequence % kinds);
      gone.clear();
      begin_preparing(restarts);
      for (const std::size_t event :
           {sequence / kinds / kinds, sequence / kinds % kinds, sequence % kinds})
        events()[event]();
      take();
      says(1, StoreReady{{}, 0, "10.0.0.1", 29500});
      const auto told = messages<RoundComplete>();
      const Rendezvous* run = service->rendezvous("job");
      REQUIRE(run != nullptr);
      if (run->broken()) FAIL(*run->broken());
      // A round that begins has all of its members.
      for (const auto& [client, round] : told)
        if (run->participants() != static_cast<std::size_t>(round.group_world_size))
          FAIL("a round of " << round.group_world_size << " has " << run->participants());
      service->time_passed(at(10s));
      for (const std::uint32_t client : {1, 2, 3})
        lose(client);
      if (run->broken()) FAIL(*run->broken());
    }
}

TEST_CASE_METHOD(RunServiceTest, "runs: one connection may be in a limited number of runs",
                 "[unit][rendezvous]") {
  reset({.runs_per_connection = 2});
  const auto key = [](int run) { return "/torch.rendezvous.j" + std::to_string(run); };
  for (int run = 0; run < 2; ++run)
    (void)text(compare_set(1, "", kNoStateText, key(run)));
  const auto third = compare_set(1, "", kNoStateText, key(2));
  REQUIRE(std::holds_alternative<StateRefused>(third));
  CHECK(std::get<StateRefused>(third).reason == "limit runs_per_connection=2");
  CHECK(service->runs() == 2);
  // The client may read the state of a run that another client has begun, but not write it.
  (void)text(compare_set(2, "", kNoStateText, key(3)));
  const std::string seen = text(compare_set(1, "", kNoStateText, key(3)));
  CHECK(std::holds_alternative<StateRefused>(compare_set(1, seen, joined_by(1, seen), key(3))));
  service->waits({1}, "some key", at());
  service->disconnect({1}, at());
  CHECK(service->state_clients() == 1);
}

TEST_CASE_METHOD(RunServiceTest, "runs: one address may begin a limited number of runs",
                 "[unit][rendezvous]") {
  reset({.runs = 3, .runs_per_peer = 2});
  const auto begins = [&](std::uint32_t client, const std::string& run, const std::string& peer) {
    const std::string frame = encode(NativeHello{kNativeProtocolVersion, "9.9", run});
    return service
        ->receive({client}, std::string_view(frame).substr(1 + kNativeLengthBytes), peer, at())
        .close;
  };
  CHECK(begins(1, "a", "10.0.0.1").empty());
  CHECK(begins(2, "b", "10.0.0.1").empty());
  CHECK_THAT(begins(3, "c", "10.0.0.1"), Catch::Contains("runs_per_peer=2"));
  CHECK(begins(4, "a", "10.0.0.1").empty());  // The run already exists.
  CHECK(begins(5, "c", "10.0.0.2").empty());
  CHECK_THAT(begins(6, "d", "10.0.0.2"), Catch::Contains("runs=3"));
  // A run without clients is forgotten to make room for another one from the same address.
  service->disconnect({2}, at());
  CHECK(begins(7, "d", "10.0.0.1").empty());
  CHECK(service->rendezvous("b") == nullptr);
  CHECK(service->runs() == 3);
}

TEST_CASE_METHOD(RunServiceTest, "runs: nodes are not lost after a short freeze of the host",
                 "[unit][rendezvous]") {
  two_in_a_round();
  // The nodes kept alive at the latest a third of a lease (5 s) ago. Now all stand still.
  const Instant planned = *service->next_deadline();
  const auto time = at(4500ms);
  service->woke_late(time.now - planned, time);
  service->time_passed(at(3s));
  CHECK(service->rendezvous("job")->members() == 2);
}

TEST_CASE_METHOD(RunServiceTest, "runs: a join after a long wait is not taken for a freeze",
                 "[unit][rendezvous]") {
  hello(1);
  join(1, 3);
  for (int second = 0; second < 10; ++second) {
    service->time_passed(at(1s));
    take();
  }
  hello(2);
  join(2, 3);
  CHECK(*service->next_deadline() >= now);
}

TEST_CASE_METHOD(RunServiceTest, "runs: after a freeze of the host every lease begins anew",
                 "[unit][rendezvous]") {
  two_in_a_round();
  const bool frozen = GENERATE(true, false);
  const auto time = at(40s);
  service->woke_late(frozen ? Duration(35s) : Duration(500ms), time);
  service->time_passed(time);
  if (!frozen) {
    CHECK(service->rendezvous("job")->members() == 0);
    return;
  }
  CHECK(take().empty());
  CHECK_THAT(notes, Catch::Contains("host_was_frozen seconds=35"));
  // Nodes that stay silent are lost a lease later.
  service->time_passed(at(4s));
  CHECK(service->rendezvous("job")->members() == 2);
  service->time_passed(at(2s));
  CHECK(service->rendezvous("job")->members() == 0);
}

}  // namespace

}  // namespace muster::testing

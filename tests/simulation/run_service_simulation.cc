// Seeded strangers at a run service: encoded messages of both doors in any order, names and numbers
// of any size, waits, replays, connections that close at any point, and a host that freezes. No run
// may break an invariant, no node may get two worlds for one round, and the two honest nodes must
// work undisturbed to their end.
// MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> the seeds from 1 to n.

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "tests/support/prng.h"
#include "tests/support/seeds.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {
namespace {

class Strangers : RunServiceTest {
 public:
  explicit Strangers(std::uint64_t seed) : dice_(seed) {
    reset({.runs = 4, .runs_per_connection = 2, .forget_after = 5s});
    for (const std::uint32_t honest : {kFirst, kSecond}) {
      hello(honest, "good");
      join(honest, 2);
    }
    tell(kFirst, StoreReady{{}, 0, "10.0.0.1", 29500});
    check_invariants();
    REQUIRE(rounds_sent_ == 2);
  }

  void run() {
    for (int step = 0; step < kSteps; ++step) {
      act(1 + static_cast<std::uint32_t>(dice_.below(kStrangers)));
      check_invariants();
    }
    for (const std::uint32_t honest : {kFirst, kSecond})
      tell(honest, NodeFinished{{}, 0, true, ""});
    check_invariants();
    CHECK(good_ends_ == 2);
  }

 private:
  static constexpr std::uint32_t kFirst = 101, kSecond = 102;
  static constexpr std::uint64_t kStrangers = 10;
  static constexpr int kSteps = 300;

  template <std::size_t N>
  std::int64_t one_of(const std::array<std::int64_t, N>& numbers) {
    return numbers[dice_.below(N)];
  }
  std::int64_t some_round() {
    return one_of(
        std::array<std::int64_t, 6>{0, 0, 1, 2, 7, std::numeric_limits<std::int64_t>::max()});
  }
  std::string some_run() {
    static const std::array<std::string, 4> runs{"good", "a", "b", "c"};
    return runs[dice_.below(runs.size())];
  }
  std::string some_key() { return std::string(kStateKeyPrefix) + some_run(); }
  NodeName some_name() {
    return {"host" + std::to_string(dice_.below(4)), static_cast<std::int64_t>(dice_.below(2)),
            one_of(std::array<std::int64_t, 4>{0, 0, 1, std::numeric_limits<std::int64_t>::max()})};
  }
  Duration some_wait() {
    return Duration(one_of(std::array<std::int64_t, 4>{0, 2'000'000'000, 600'000'000'000,
                                                       std::numeric_limits<std::int64_t>::max()}));
  }

  NodeJoined some_join() {
    NodeJoined joined;
    joined.name = some_name();
    if (dice_.chance(70)) joined.instance = "i" + std::to_string(dice_.below(5));
    joined.local_world_size = static_cast<int>(
        one_of(std::array<std::int64_t, 5>{0, 1, 1, 2, std::numeric_limits<int>::max()}));
    joined.role = "default";
    joined.run.min_nodes = 1 + static_cast<int>(dice_.below(2));
    joined.run.max_nodes = joined.run.min_nodes + static_cast<int>(dice_.below(2));
    if (dice_.chance(5)) joined.run.max_nodes = std::numeric_limits<int>::max();
    joined.run.max_restarts = static_cast<int>(dice_.below(3));
    if (dice_.chance(30)) joined.run.join_timeout = some_wait();
    if (dice_.chance(60)) joined.run.last_call_timeout = some_wait();
    joined.last_round = dice_.chance(60) ? -1 : some_round();
    joined.spare = dice_.chance(10);
    joined.hosts_rendezvous = dice_.chance(20);
    if (dice_.chance(20)) joined.preferred_rank = static_cast<int>(some_round());
    if (joined.preferred_rank && *joined.preferred_rank < 0) joined.preferred_rank.reset();
    joined.muster_version = "x";
    return joined;
  }

  NativeRequest some_message() {
    switch (dice_.below(9)) {
      case 0:
      case 1:
        return NativeHello{kNativeProtocolVersion, "9.9", some_run()};
      case 2:
      case 3:
        return some_join();
      case 4:
        return NodeLeft{};
      case 5:
        return WorkersFailed{{}, some_round(), "x\n\x1b[2J"};
      case 6:
        return RestartRequested{{}, "\"x"};
      case 7:
        return NodeFinished{{}, some_round(), dice_.chance(50), "x"};
      default:
        return StoreReady{{}, some_round(), "10.0.0.9", 1};
    }
  }

  void act(std::uint32_t client) {
    switch (dice_.below(8)) {
      case 0:
      case 1:
      case 2:
        return end_if_refused(client, !tell(client, some_message()).close.empty());
      case 3:
      case 4:
        return write_state(client);
      case 5:
        return wait(client);
      case 6:
        return service->disconnect({client}, at());
      default:
        return pass();
    }
  }
  /// Closes a refused client, as a connection does.
  void end_if_refused(std::uint32_t client, bool refused) {
    if (refused) service->disconnect({client}, at());
  }

  void write_state(std::uint32_t client) {
    if (is_native(client)) return;
    const std::string key = some_key();
    if (!service->has_state(key) || dice_.chance(20)) {
      const auto begun = compare_set(client, "", kNoStateText, key);
      return end_if_refused(client, std::holds_alternative<StateRefused>(begun));
    }
    Written next{key, std::string(service->read_state({client}, key, at()).view()), {}};
    RendezvousState changed = state(next.seen);
    change(changed, some_name());
    next.desired = encode_state(changed);
    // Replays an earlier write.
    if (!written_.empty() && dice_.chance(20)) next = written_[dice_.below(written_.size())];
    written_.push_back(next);
    if (!service->has_state(next.key)) return;
    const auto outcome = compare_set(client, next.seen, next.desired, next.key);
    end_if_refused(client, std::holds_alternative<StateRefused>(outcome));
  }

  void change(RendezvousState& changed, const NodeName& name) {
    constexpr std::int64_t kYear = std::int64_t{365} * 86'400 * 1'000'000;
    const WallTime heartbeat{
        at().wall.microseconds +
        one_of(std::array<std::int64_t, 5>{0, 0, 20'000'000, -20'000'000, 200 * kYear})};
    switch (dice_.below(9)) {
      case 0:
      case 1:
        changed.participants.set(name, 0);
        break;
      case 2:
        changed.wait_list.insert(name);
        break;
      case 3:
        changed.redundancy_list.insert(name);
        break;
      case 4:
        changed.closed = true;
        return;
      case 5:
        changed.complete = true;
        return;
      case 6:
        changed.participants.erase(name);
        changed.wait_list.erase(name);
        changed.last_heartbeats.erase(name);
        return;
      case 7:
        changed.last_heartbeats = {};  // All nodes are dead.
        return;
      default:
        break;
    }
    changed.last_heartbeats.set(name, heartbeat);
  }

  void wait(std::uint32_t client) {
    const std::string barrier =
        some_key() + "." + std::to_string(dice_.below(2)) + std::string(kExitBarrierKey);
    if (dice_.chance(40)) return service->waits({client}, std::nullopt, at());
    service->waits({client}, dice_.chance(60) ? std::string_view(barrier) : "key", at());
  }

  void pass() {
    const bool freeze = dice_.chance(10);
    const Duration step = freeze ? Duration(std::chrono::seconds(2 + dice_.below(60)))
                                 : Duration(std::chrono::milliseconds(dice_.below(1500)));
    const auto time = at(step);
    // The keep-alives of the honest nodes that waited in the sockets. After a freeze there may be
    // none.
    if (!freeze || dice_.chance(50))
      for (const std::uint32_t honest : {kFirst, kSecond})
        tell(honest, KeptAlive{});
    if (freeze) service->woke_late(step, time);
    service->time_passed(time);
  }

  bool is_native(std::uint32_t client) {
    // A client that has said hello may not use the other door.
    return !tell(client, KeptAlive{}).reply.has_value();
  }

  void check_invariants() {
    for (const RunEffect& effect : take())
      if (const auto* send = std::get_if<SendNative>(&effect)) check_message(*send);
    for (const std::string run : {"good", "a", "b", "c"}) {
      const Rendezvous* here = service->rendezvous(run);
      if (here == nullptr) continue;
      if (here->broken()) FAIL(run << " is broken: " << *here->broken());
      if (!here->counts_are_right()) FAIL(run << " has wrong counts of members");
    }
    for (const char c : notes)
      if (c != '\n' && (c < ' ' || c == 0x7f)) FAIL("a control character in the log");
    Trace::now().add(notes);
    Trace::now().add(now.time_since_epoch().count());
    notes.clear();
    if (service->runs() > 4) FAIL("too many runs");
    if (const auto next = service->next_deadline(); next && *next > now + 2 * kLongestWait)
      FAIL("a deadline has overflowed");
  }

  void check_message(const SendNative& send) {
    Trace::now().add(std::int64_t{send.to.value});
    Trace::now().add(encode(send.message));
    const bool honest = send.to.value == kFirst || send.to.value == kSecond;
    if (const auto* ended = std::get_if<RunEnded>(&send.message); ended != nullptr && honest) {
      if (!ended->succeeded) FAIL("the honest run has failed: " << ended->why);
      ++good_ends_;
    }
    if (honest && (std::holds_alternative<RestartRound>(send.message) ||
                   std::holds_alternative<NotAMember>(send.message) ||
                   std::holds_alternative<JoinRefused>(send.message)))
      FAIL("an honest node was disturbed");
    const auto* round = std::get_if<RoundComplete>(&send.message);
    if (round == nullptr) return;
    ++rounds_sent_;
    const auto key = std::tuple(round->life, round->round);
    const auto [world, is_new] = worlds_.try_emplace(key, round->group_world_size);
    if (world->second != round->group_world_size) FAIL("two worlds in one round");
    const int rank = round->group_rank.value;
    if (rank < 0 || rank >= round->group_world_size) FAIL("a rank beyond the world");
    if (round->workers &&
        (round->workers->world_size < 1 || round->workers->base_global_rank.value < 0))
      FAIL("a number of workers has overflowed");
  }

  struct Written {
    std::string key, seen, desired;
  };
  Prng dice_;
  std::vector<Written> written_;
  std::map<std::tuple<std::int64_t, std::int64_t>, int> worlds_;
  int rounds_sent_ = 0;
  int good_ends_ = 0;
};

void play(std::uint64_t seed) {
  INFO("MUSTER_SEED=" << seed);
  Strangers(seed).run();
}

TEST_CASE("simulation: strangers at a run service break no invariant and disturb no honest job",
          "[simulation]") {
  run_seeds(300, play);
}

}  // namespace
}  // namespace muster::testing

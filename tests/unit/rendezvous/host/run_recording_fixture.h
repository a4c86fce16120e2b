// A run service whose state is recorded, with a disk that outlives it.
#pragma once

#include "tests/support/memory_state.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {

struct RecordingTest : RunServiceTest {
  RecordingTest() { begin_recorded(); }
  /// Starts a host with the durable record.
  void begin_recorded() {
    RunServiceOptions options;
    options.recorded = true;
    options.history = 2;
    options.kept_ended_runs = kept_ended_runs;
    reset(std::move(options));
    state.begin_host();
    service->restore(state.load(), at());
  }
  /// The same for a host that is an agent. Another agent can be the next host.
  void begin_handed_over() {
    RunServiceOptions options;
    options.only_run = "job";
    options.hands_over = options.recorded = options.shared_state = true;
    options.setup.first_return = Duration::zero();
    reset(std::move(options));
    state.begin_host();
    service->restore(state.load(), at());
  }
  /// Ends one turn of the loop, and makes its changes durable.
  void end_turn() {
    turn_ends();
    commit();
  }
  bool turn_ends() {
    auto changes = service->take_changes(at());
    if (!changes) return false;
    state.record(*std::move(changes));
    return true;
  }
  void commit() { service->recorded({.durable = state.commit(), .problem = {}}, at()); }
  NodeJoined joining(std::uint32_t client, int nodes = 2) {
    NodeJoined joined;
    joined.name = {"host" + std::to_string(client), client, 0};
    joined.instance = "instance" + std::to_string(client) + agents;
    joined.run = for_nodes(nodes);
    return joined;
  }
  void hello_resumes(std::uint32_t client) {
    const auto answer = tell(client, NativeHello{kNativeProtocolVersion, "9.9", "job", true});
    REQUIRE(answer.close.empty());
  }
  NodeJoined spare_joins(std::uint32_t client) {
    hello_resumes(client);
    NodeJoined spare = joining(client);
    spare.spare = true;
    tell(client, spare);
    return spare;
  }
  /// Clients 1 and 2 ask to join.
  void two_join() {
    for (const std::uint32_t client : {1, 2}) {
      hello_resumes(client);
      tell(client, joining(client));
    }
  }
  /// Clients 1 and 2 are in round 0.
  void two_recorded() {
    two_join();
    end_turn();
    REQUIRE(messages<PrepareStore>().size() == 1);
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    end_turn();
    rounds = messages<RoundComplete>();
    REQUIRE(rounds.size() == 2);
  }
  /// Resumes as the node of client 1 or 2, which has got its round, on another connection.
  void resume(std::uint32_t client, std::uint32_t as,
              NodeResumed::State how = NodeResumed::State::Running, std::int64_t newer_by = 0) {
    hello_resumes(as);
    const RoundComplete& round = rounds.at(client);
    NodeResumed resumed;
    resumed.join = joining(client);
    resumed.join.last_round = round.round + newer_by;
    resumed.join.life = round.life;
    resumed.join.generation = round.generation + newer_by;
    resumed.state = how;
    resumed.group_rank = round.group_rank.value;
    resumed.group_world_size = 2;
    resumed.restart_count = round.restart_count;
    resumed.workers = round.workers;
    resumed.store = round.store;
    tell(as, resumed);
  }

  MemoryState state;
  std::string agents;  // Changed if the nodes are new agents.
  std::size_t kept_ended_runs = 0;
  std::map<std::uint32_t, RoundComplete> rounds;
};

}  // namespace muster::testing

// Nodes that resume: in a round of this rendezvous, or in one that an earlier host made.
#pragma once

#include "rendezvous/messages/native_codec.h"
#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {

using namespace std::chrono_literals;

inline constexpr std::int64_t kOldLife = 3;

struct ResumeTest : RendezvousTest {
  explicit ResumeTest(RunSettings run = {.min_nodes = 2, .max_nodes = 3, .max_restarts = 2})
      : RendezvousTest(run) {}

  /// a, b and c are in round 0, on the connections 1, 2 and 3.
  void three_in_a_round() {
    after({}, joiner(1, "a"));
    after({}, joiner(2, "b"));
    const auto complete = sent<RoundComplete>(ready(after({}, joiner(3, "c"))));
    REQUIRE(complete.size() == 3);
    generation = complete.at(1).generation;
    REQUIRE(generation == 1);
  }
  /// The resume of a node of a round of three. That round belongs to this rendezvous, or to one of
  /// an earlier host.
  NodeResumed resume(std::uint32_t id, const std::string& addr, int rank, std::int64_t life = 7,
                     std::int64_t round = 0) const {
    NodeResumed event;
    event.from = {id};
    event.join = joiner(id, addr);
    event.join.last_round = round;
    event.join.life = life;
    event.join.generation = generation;
    event.group_rank = rank;
    event.group_world_size = 3;
    event.restart_count = 1;
    event.workers = WorkerRanks{.base_global_rank = {2 * rank},
                                .world_size = 6,
                                .base_role_rank = 2 * rank,
                                .role_world_size = 6};
    event.store = StoreAddress{"store", 29400};
    return event;
  }
  static const RoundRecovered* recovered(const RendezvousActions& actions) {
    for (const auto& action : actions)
      if (const auto* found = std::get_if<RoundRecovered>(&action)) return found;
    return nullptr;
  }

  std::int64_t generation = 9;
};

}  // namespace muster::testing

// A muster node in the state of a torchrun host, and the clocks of both.
#pragma once

#include <catch2/catch.hpp>

#include "rendezvous/torchrun/c10d_participant.h"

namespace muster::testing {

using namespace std::chrono_literals;

inline const NodeName kMe{"b", 2, 0};
inline const NodeName kFirst{"a", 1, 0};
inline const NodeName kLast{"c", 3, 0};

inline RendezvousSettings settings(int min, int max) {
  RendezvousSettings made;
  made.run = {.min_nodes = min, .max_nodes = max};
  return made;
}

struct ParticipantTest {
  Instant now{std::chrono::hours(1)};
  std::int64_t wall_us = 1'700'000'000'000'000;
  RendezvousState state;
  C10dParticipant me{kMe, settings(2, 3)};

  WallTime wall() const { return {wall_us}; }
  void pass(Duration time) {
    now += time;
    wall_us += std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  }
  void in(const NodeName& node, std::int64_t rank = 0) {
    state.participants.set(node, rank);
    state.last_heartbeats.set(node, wall());
  }
  C10dStep step() { return me.step(state, now, wall()); }
  /// Steps until a step writes nothing, and returns that step.
  C10dStep settle() {
    for (int i = 0; i < 10; ++i) {
      C10dStep next = step();
      const auto* write = std::get_if<WriteState>(&next);
      if (write == nullptr) return next;
      state = write->state;
    }
    FAIL("it writes for ever");
    return CheckLater{};
  }
  /// A complete round 0 of kFirst (rank 0) and this node.
  void in_a_round() {
    me = C10dParticipant(kMe, settings(2, 3));
    state = {};
    in(kFirst);
    me.join(now);
    REQUIRE(std::holds_alternative<CheckLater>(settle()));
    pass(31s);
    state.last_heartbeats.set(kFirst, wall());
    REQUIRE(std::holds_alternative<RoundReady>(settle()));
    me.mark_round_seen_by_all();
    settle();  // Writes its keep-alive.
  }
};

}  // namespace muster::testing

// A rendezvous of muster nodes with a clock, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/host/rendezvous.h"

namespace muster::testing {

struct RendezvousTest {
  explicit RendezvousTest(RunSettings run = {.min_nodes = 2, .max_nodes = 4, .max_restarts = 1})
      : settings(run), rendezvous(RendezvousSetup{.run = run, .life = 7}) {}

  RendezvousActions after(Duration elapsed, const RendezvousEvent& event) {
    RendezvousActions actions = rendezvous.step(event, now += elapsed);
    REQUIRE(rendezvous.counts_are_right());
    return actions;
  }
  /// Lets `elapsed` pass; the clients in `alive` send keep-alives meanwhile.
  RendezvousActions pass(Duration elapsed, std::vector<std::uint32_t> alive) {
    RendezvousActions all;
    const Instant end = now + elapsed;
    while (now < end) {
      for (const auto id : alive)
        append(all, after({}, KeptAlive{{id}}));
      append(all,
             after(std::min<Duration>(std::chrono::seconds(1), end - now), RendezvousTimePassed{}));
    }
    return all;
  }
  static void append(RendezvousActions& all, RendezvousActions more) {
    all.insert(all.end(), more.begin(), more.end());
  }
  NodeJoined join(std::uint32_t id, std::string addr) const {
    return {.from = {id},
            .name = {std::move(addr), 1, 0},
            .local_world_size = 2,
            .role = "default",
            .run = settings,
            .muster_version = "1.0",
            .last_round = rendezvous.round()};
  }
  /// The join of a node that can resume and has been in no round.
  NodeJoined joiner(std::uint32_t id, const std::string& addr) const {
    NodeJoined event = join(id, addr);
    event.instance = "of " + addr;
    event.last_round = -1;
    event.resumes = true;
    return event;
  }
  RendezvousActions joins(std::uint32_t id, std::string addr) {
    return after({}, join(id, std::move(addr)));
  }
  /// Rank 0 of the round reports that its store is ready.
  RendezvousActions ready(const RendezvousActions& actions) {
    for (const auto& action : actions)
      if (const auto* prepare = std::get_if<PrepareStore>(&action))
        return after({}, StoreReady{prepare->to, prepare->round, "store", 29400});
    FAIL("nobody was asked for the store");
    return {};
  }
  template <typename T>
  static std::map<std::uint32_t, T> sent(const RendezvousActions& actions) {
    std::map<std::uint32_t, T> found;
    for (const auto& action : actions)
      if (const auto* message = std::get_if<T>(&action)) found.emplace(message->to.value, *message);
    return found;
  }

  RunSettings settings;
  Rendezvous rendezvous;
  Instant now{};
};

struct FourNodes : RendezvousTest {
  FourNodes() {
    joins(1, "a");
    joins(2, "b");
    joins(3, "c");
    const auto complete = sent<RoundComplete>(ready(joins(4, "d")));
    REQUIRE(complete.size() == 4);
    for (std::uint32_t id = 1; id <= 4; ++id)
      REQUIRE(complete.at(id).group_rank.value == static_cast<int>(id) - 1);
  }
};

}  // namespace muster::testing

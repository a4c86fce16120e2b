// The cost of a rendezvous: messages of muster nodes, compare-and-sets of torchrun nodes.

#include <catch2/catch.hpp>

#include "tests/simulation/rendezvous_nodes.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

bool all_in(World& world, std::int64_t round) {
  for (const auto& node : world.nodes())
    if (node->round() != round) return false;
  return true;
}

TEST_CASE("simulation: the number of messages grows linearly with the number of muster nodes",
          "[simulation]") {
  for (const int nodes : {8, 64, 512}) {
    INFO(nodes << " nodes");
    World world(1, {.run = {.min_nodes = nodes, .max_nodes = nodes, .max_restarts = 1}});
    world.faults = false;
    for (int i = 0; i < nodes; ++i)
      world.add_muster("node" + std::to_string(i)).start();
    REQUIRE(world.run_until(Instant(5s), [&] { return all_in(world, 0); }));
    // Each node sends a join and one keep-alive and gets its ranks. Rank 0 also prepares the store.
    const auto n = static_cast<std::size_t>(nodes);
    CHECK(world.counts.to_server == 2 * n + 1);
    CHECK(world.counts.to_nodes == n + 1);
    CHECK(world.now() < Instant(1s));
    world.counts = {};
    dynamic_cast<MusterNode&>(*world.nodes().front()).fail("rank 0 exited with 1");
    REQUIRE(world.run_until(world.now() + 1s, [&] { return all_in(world, 1); }));
    // One failure. Each node is told to restart, joins again and gets its ranks.
    CHECK(world.counts.to_server <= n + 2);
    CHECK(world.counts.to_nodes == 2 * n + 1);
  }
}

struct Cost {
  std::size_t most_tries = 0, all_tries = 0;
  Duration took{};
};

struct Store {
  bool merging = true, turns = true;
};
/// Starts N torchrun nodes and restarts all of them twice. Returns the cost of the second restart.
Cost restart_of(int nodes, Store store, std::uint64_t think_us = 4'000) {
  World world(2, {.run = {.min_nodes = nodes, .max_nodes = nodes},
                  .host_knows_settings = false,
                  .turns = store.turns,
                  .merging = store.merging,
                  .stop_us = 1,
                  .think_us = think_us,  // Python's time, measured at 3 ms on an idle core.
                  .torch = {.min_nodes = nodes, .max_nodes = nodes}});
  world.faults = false;
  for (int i = 0; i < nodes; ++i)
    world.add_torch("node" + std::to_string(i)).start();
  Cost cost;
  for (int round = 0; round < 3; ++round) {
    const Instant begin = world.now();
    std::vector<std::size_t> before;
    for (const auto& node : world.nodes())
      before.push_back(dynamic_cast<TorchNode&>(*node).tries());
    if (round > 0)
      for (const auto& node : world.nodes())
        dynamic_cast<TorchNode&>(*node).fail();
    REQUIRE(world.run_until(begin + 120s, [&] { return all_in(world, round); }));
    cost = {.took = world.now() - begin};
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto tries = dynamic_cast<TorchNode&>(*world.nodes()[i]).tries() - before[i];
      cost.most_tries = std::max(cost.most_tries, tries);
      cost.all_tries += tries;
    }
  }
  return cost;
}

TEST_CASE("simulation: with turns, a torchrun node's tries do not grow with the number of nodes",
          "[simulation]") {
  for (const int nodes : {8, 32, 128, 256}) {
    INFO(nodes << " nodes");
    const Cost cost = restart_of(nodes, {});
    INFO("tries: " << cost.all_tries << ", at most " << cost.most_tries << " by one node");
    // Three writes are necessary: leave, wait, join. One more if another node was faster.
    CHECK(cost.all_tries <= 5 * static_cast<std::size_t>(nodes));
    CHECK(cost.most_tries <= 10);
    CHECK(cost.took < 6s);
  }
}

TEST_CASE(
    "simulation: at a plain store the same nodes flood the store, and turns alone prevent that",
    "[simulation]") {
  // Shows that the test above would fail without turns and merging. 20 ms: many Python processes on
  // few cores.
  const Cost ours = restart_of(64, {}, 20'000);
  const Cost plain = restart_of(64, {.merging = false, .turns = false}, 20'000);
  const Cost turns = restart_of(64, {.merging = false, .turns = true}, 20'000);
  INFO(ours.all_tries << " tries here, " << turns.all_tries << " with turns alone, "
                      << plain.all_tries << " at a plain store");
  CHECK(2 * plain.all_tries > 3 * ours.all_tries);
  CHECK(3 * turns.all_tries < 2 * plain.all_tries);
}

TEST_CASE("simulation: keep-alives of muster nodes do not make torchrun nodes repeat their writes",
          "[simulation]") {
  World world(
      3, {.run = {.min_nodes = 24, .max_nodes = 24}, .torch = {.min_nodes = 24, .max_nodes = 24}});
  world.faults = false;
  for (int i = 0; i < 16; ++i)
    world.add_muster("muster" + std::to_string(i)).start();
  for (int i = 0; i < 8; ++i)
    world.add_torch("torch" + std::to_string(i)).start();
  REQUIRE(world.run_until(Instant(10s), [&] { return all_in(world, 0); }));
  world.counts = {};
  world.run_until(world.now() + 60s);
  // Each node writes at most twelve keep-alives in a minute, and none of them twice.
  CHECK(world.counts.compare_sets <= std::size_t{8} * 13);
  CHECK(world.counts.compare_sets >= std::size_t{8} * 6);
  CHECK(all_in(world, 0));
}

}  // namespace
}  // namespace muster::testing

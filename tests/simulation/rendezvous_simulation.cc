// Seeded clusters around one rendezvous: muster nodes, torchrun nodes and mixtures, with delays,
// stalls, broken connections, dead nodes, failing workers and clocks that are off. Invariants are
// checked at each step (rendezvous_world.cc); then the faults stop, and the cluster must converge.
// MUSTER_SEED=<seed> runs one seed again.

#include <algorithm>
#include <cstdlib>

#include <catch2/catch.hpp>

#include "tests/simulation/rendezvous_nodes.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

std::string describe(World& world) {
  std::string text = std::string(world.server().reason()) + "\n";
  for (const auto& node : world.nodes())
    text += node->describe() + "\n";
  return text;
}

class Scenario {
 public:
  explicit Scenario(std::uint64_t seed)
      : dice_(seed ^ 0x5eed), options_(draw_options(seed)), world_(seed, options_) {}

  void run() {
    const int nodes = 1 + static_cast<int>(dice_.below(6));
    const int kinds = static_cast<int>(dice_.below(3));  // All muster, all torchrun, both.
    for (int i = 0; i < nodes; ++i)
      world_.at(std::chrono::milliseconds(dice_.below(8'000)), [this, i, kinds] { add(i, kinds); });
    const int mishaps = static_cast<int>(dice_.below(5));
    for (int i = 0; i < mishaps; ++i)
      world_.at(std::chrono::milliseconds(dice_.below(50'000)), [this] { mishap(); });
    world_.run_until(Instant(60s));
    world_.faults = false;
    // A lease, torchrun's 15 s and the last call's 30 s, and some polls of a second.
    INFO(describe(world_));
    const bool converged = world_.run_until(Instant(200s), [this] { return is_converged(); });
    INFO("at the end: " << describe(world_));
    REQUIRE(converged);
  }

 private:
  WorldOptions draw_options(std::uint64_t seed) {
    WorldOptions options;
    options.run.min_nodes = 1 + static_cast<int>(dice_.below(3));
    options.run.max_nodes = options.run.min_nodes + static_cast<int>(dice_.below(3));
    options.run.max_restarts = static_cast<int>(dice_.below(4));
    options.run.last_call_timeout = dice_.chance(50) ? 30s : 3s;
    options.run.scale_policy = static_cast<ScalePolicy>(dice_.chance(70) ? 0 : dice_.below(3));
    options.host_knows_settings = dice_.chance(80);
    options.through_codec = seed % 16 == 0;
    options.worker_failures = dice_.chance(50);
    options.torch = {.min_nodes = options.run.min_nodes,
                     .max_nodes = options.run.max_nodes,
                     .join_timeout = 600s,
                     .last_call = options.run.last_call_timeout};
    skewed_ = dice_.chance(20);
    return options;
  }

  void add(int index, int kinds) {
    const bool muster = kinds == 0 || (kinds == 2 && dice_.chance(50));
    const std::string addr = "node" + std::to_string(index);
    Node& node = muster ? world_.add_muster(addr, dice_.chance(10)) : world_.add_torch(addr);
    // Where nobody tells us the run's settings, it is left to torchrun's own rules, and those hold
    // for clocks that differ by less than 15 s.
    const Duration most = options_.host_knows_settings ? 30s : 5s;
    if (skewed_)
      node.skew =
          std::chrono::milliseconds(dice_.below(static_cast<std::uint64_t>(2 * most / 1ms))) - most;
    node.start();
  }

  void mishap() {
    auto& nodes = world_.nodes();
    if (nodes.empty()) return;
    Node& node = *nodes[dice_.below(nodes.size())];
    if (!node.alive()) return;
    switch (dice_.below(5)) {
      case 0:
        return node.die(true);  // Killed: its kernel closes the connection.
      case 1:
        return node.die(false);  // The whole host: nobody says anything.
      case 2:                    // A partition, shorter than it takes to be noticed, or not.
        node.disturbed = true;
        node.stalled_until = world_.now() + std::chrono::milliseconds(dice_.below(8'000));
        return;
      case 3:
        if (auto* torch = dynamic_cast<TorchNode*>(&node)) return torch->fail();
        return dynamic_cast<MusterNode&>(node).fail("rank 1 was killed by SIGSEGV");
      default:  // A clock is set.
        if (dynamic_cast<TorchNode*>(&node) != nullptr && skewed_) {
          node.disturbed = true;
          node.skew += std::chrono::milliseconds(dice_.below(4'000)) - 2s;
        }
        return;
    }
  }

  /// Whoever lives is in the running round, waits as a spare, or knows that it is over; or there
  /// are too few, and they wait.
  bool is_converged() {
    Rendezvous& server = world_.server();
    int alive = 0;
    bool all_settled = true;
    for (const auto& node : world_.nodes()) {
      if (!node->alive()) continue;
      const auto* muster = dynamic_cast<const MusterNode*>(node.get());
      if (muster != nullptr && muster->phase() == MusterNode::Phase::Refused) continue;
      const auto* torch = dynamic_cast<const TorchNode*>(node.get());
      if (torch != nullptr && torch->phase() == TorchNode::Phase::Failed) continue;
      if (torch != nullptr && is_ghost(*torch)) continue;
      ++alive;
      all_settled = all_settled && is_settled(*node);
    }
    if (server.phase() == Rendezvous::Phase::Ended || server.closed()) return true;
    if (server.phase() == Rendezvous::Phase::Running) return all_settled;
    return server.phase() == Rendezvous::Phase::Gathering && alive < options_.run.min_nodes;
  }

  /// A torchrun node that was silent for too long is dropped, and nobody can tell it: it trains on
  /// until it looks again. Only those that were cut off, or whose clock was set.
  bool is_ghost(const TorchNode& node) {
    if (!node.disturbed || !node.round()) return false;
    const RendezvousState& state =
        world_.server().render(world_.now(), WallTime{world_.wall(node).microseconds});
    return !state.last_heartbeats.contains(node.name());
  }

  bool is_settled(const Node& node) {
    Rendezvous& server = world_.server();
    if (node.round()) {
      // It runs: then in the round that the server has.
      return *node.round() == server.round();
    }
    if (node.settled()) return true;
    // Waiting for a place or for the next round.
    const RendezvousState& state =
        server.render(world_.now(), WallTime{world_.wall(node).microseconds});
    return state.redundancy_list.contains(node.name()) || state.wait_list.contains(node.name());
  }

  Prng dice_;
  bool skewed_ = false;
  WorldOptions options_;
  World world_;
};

void run(std::uint64_t seed) {
  INFO("MUSTER_SEED=" << seed);
  Scenario(seed).run();
}

TEST_CASE("simulation: a cluster under faults has one world per round, and converges after them",
          "[simulation]") {
  if (const char* seed = std::getenv("MUSTER_SEED")) return run(std::strtoull(seed, nullptr, 0));
  for (std::uint64_t seed = 1; seed <= 2000; ++seed)
    run(seed);
}

}  // namespace
}  // namespace muster::testing

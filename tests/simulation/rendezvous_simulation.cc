// Seeded clusters around one rendezvous: muster nodes, torchrun nodes and mixtures. Faults: delays,
// stalls, connections that break and come back, partitions in one direction or both, a server that
// starts again with nothing, dead nodes, failing workers, nodes that finish or leave, two nodes
// with one name, and wrong clocks. Invariants are checked at each step (rendezvous_world.cc). Then
// the faults stop, and the cluster must converge: no node may wait for something that cannot
// happen. MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> the seeds from 1 to n.

#include <algorithm>
#include <cstdlib>

#include <catch2/catch.hpp>

#include "tests/simulation/rendezvous_nodes.h"
#include "tests/support/seeds.h"

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
    const int kinds = static_cast<int>(dice_.below(3));  // 0: all muster, 1: all torchrun, 2: both.
    for (int i = 0; i < nodes; ++i)
      world_.at(std::chrono::milliseconds(dice_.below(8'000)), [this, i, kinds] { add(i, kinds); });
    const int mishaps = static_cast<int>(dice_.below(6));
    for (int i = 0; i < mishaps; ++i)
      world_.at(std::chrono::milliseconds(dice_.below(50'000)), [this] { mishap(); });
    world_.run_until(Instant(60s));
    world_.faults = false;
    // The limit covers a lease, torchrun's 15 s, the last call's 30 s, and some polls of 1 s.
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
    options.through_codec = seed % 128 == 0;
    options.run.on_notice = static_cast<OnNotice>(dice_.below(3));
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
    if (muster && dice_.chance(10))
      for (const auto& other : world_.nodes())
        if (dynamic_cast<const MusterNode*>(other.get()) != nullptr)
          return world_.add_muster(NodeName(other->name())).start();
    Node& node = muster ? world_.add_muster(addr, dice_.chance(10)) : world_.add_torch(addr);
    // torchrun works with clocks that differ by at most 15 s. Beyond that only a first round is
    // certain (rendezvous_c10d_test.cc).
    constexpr Duration kMax = 7s;
    if (skewed_)
      node.skew =
          std::chrono::milliseconds(dice_.below(static_cast<std::uint64_t>(2 * kMax / 1ms))) - kMax;
    node.start();
  }

  void mishap() {
    auto& nodes = world_.nodes();
    if (nodes.empty()) return;
    Node& node = *nodes[dice_.below(nodes.size())];
    if (!node.alive()) return;
    auto* muster = dynamic_cast<MusterNode*>(&node);
    const auto up_to = [this](std::uint64_t most) {
      return std::chrono::milliseconds(dice_.below(most));
    };
    switch (dice_.below(12)) {
      case 0:
        return node.die(true);  // The process is killed: its kernel closes the connection.
      case 1:
        return node.die(false);  // The machine fails: nothing closes the connection.
      case 2:                    // Silence, possibly too short to be noticed.
        node.disturbed = true;
        node.stalled_until = world_.now() + up_to(8'000);
        return;
      case 3:
        if (muster == nullptr) return dynamic_cast<TorchNode&>(node).fail();
        return muster->fail("rank 1 was killed by SIGSEGV");
      case 4:  // A clock is set.
        if (muster != nullptr || !skewed_) return;
        node.disturbed = true;
        node.skew += up_to(4'000) - 2s;
        return;
      case 5:
        if (muster != nullptr) world_.break_connection(node);
        return;
      case 6:
        if (muster != nullptr)
          world_.part(node, static_cast<World::Direction>(dice_.below(3)), up_to(20'000));
        return;
      case 7:
        if (all_muster()) world_.restart_server(up_to(4'000));
        return;
      case 8:
        if (muster == nullptr) return dynamic_cast<TorchNode&>(node).finish();
        return muster->finish(!dice_.chance(10));
      case 9:
      case 10:
        if (muster != nullptr) muster->notify(up_to(20'000));
        return;
      default:
        if (muster != nullptr) muster->leave();
        return;
    }
  }

  bool all_muster() {
    return std::all_of(world_.nodes().begin(), world_.nodes().end(), [](const auto& node) {
      return dynamic_cast<const MusterNode*>(node.get()) != nullptr;
    });
  }

  static constexpr auto kEnded = Rendezvous::Phase::Ended;

  struct Census {
    int unfinished = 0;         // Nodes that are alive and have not finished.
    int muster_unfinished = 0;  // The muster nodes among them.
    int working = 0;            // Nodes in a round.
    int finished = 0;           // Nodes that have finished and wait for the others.
    bool all_settled = true;
  };
  Census count() {
    Census census;
    for (const auto& node : world_.nodes()) {
      if (!node->alive()) continue;
      const auto* torch = dynamic_cast<const TorchNode*>(node.get());
      if (torch != nullptr && (torch->phase() == TorchNode::Phase::Failed || is_ghost(*torch)))
        continue;
      if (const auto* muster = dynamic_cast<const MusterNode*>(node.get())) {
        const auto phase = muster->phase();
        if (phase == MusterNode::Phase::Refused || phase == MusterNode::Phase::Ended) continue;
        if (phase == MusterNode::Phase::Finished) {
          ++census.finished;
          continue;
        }
        // It waits outside of the rounds until it goes.
        if (muster->is_doomed() && !node->round() && world_.server().phase() != kEnded) continue;
        ++census.muster_unfinished;
      }
      ++census.unfinished;
      census.working += node->round() ? 1 : 0;
      census.all_settled = census.all_settled && is_settled(*node);
    }
    return census;
  }

  /// Every living node is in the running round, waits as a spare or for the nodes of the round, or
  /// knows that the run is over. Or there are too few nodes, and they wait for further ones.
  bool is_converged() {
    Rendezvous& server = world_.server();
    const Census census = count();
    const auto phase = server.phase();
    if (phase == Rendezvous::Phase::Ended)
      return census.muster_unfinished == 0 && census.finished == 0;
    if (phase == Rendezvous::Phase::Running)
      return (census.all_settled || server.closed()) &&
             (census.finished == 0 || census.working > 0);
    if (census.finished > 0) return false;
    // torchrun nodes have closed the rendezvous, and each node notices that later.
    if (server.closed()) return true;
    const bool some_have_finished = server.reason().find("finished") != std::string_view::npos;
    return phase == Rendezvous::Phase::Gathering && !some_have_finished &&
           census.unfinished < options_.run.min_nodes;
  }

  /// A torchrun node that was silent for too long is dropped. It cannot be told, and trains until
  /// it reads the state again. Only nodes that were cut off, or whose clock was set, may become
  /// this.
  bool is_ghost(const TorchNode& node) {
    if (!node.disturbed || !node.round()) return false;
    const RendezvousState& state =
        world_.server().render(world_.now(), WallTime{world_.wall(node).microseconds});
    return !state.last_heartbeats.contains(node.name());
  }

  bool is_settled(const Node& node) {
    Rendezvous& server = world_.server();
    if (node.round()) {
      // A running node must be in the server's round.
      return *node.round() == server.round();
    }
    if (node.settled()) return true;
    // The node may wait for a place or for the next round.
    const RendezvousState& state =
        server.render(world_.now(), WallTime{world_.wall(node).microseconds});
    const NodeName* known_as = server.name_of(node.connection);
    const NodeName name = known_as != nullptr ? *known_as : node.name();
    return state.redundancy_list.contains(name) || state.wait_list.contains(name);
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
  run_seeds(2000, run);
}

}  // namespace
}  // namespace muster::testing

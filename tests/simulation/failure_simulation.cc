// Workers that fail while the host is silent, and nodes that come back in any order.
//
// The host is cut off from all nodes, and may be killed and started again meanwhile. Workers of one
// or more nodes of the round fail. Each node comes back at its own time: before or after it was
// fenced, before or after the others have begun the next round. If a node reports a failure before
// that, all failures of the round cost one restart together, or end the run if no restart is left.
//
// MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> runs the seeds from 1 to n.

#include "tests/simulation/native_cluster.h"
#include "tests/support/seeds.h"

namespace muster::testing {
namespace {

class Silence {
 public:
  Silence(std::uint64_t seed, bool recorded)
      : dice_(seed ^ 0x51137ce),
        count_(2 + static_cast<int>(dice_.below(3))),
        run_{.min_nodes = dice_.chance(50) ? count_ : 1 + static_cast<int>(dice_.below(2)),
             .max_nodes = count_,
             .max_restarts = static_cast<int>(dice_.below(3)),
             .last_call_timeout = 3s},
        recorded_(recorded),
        cluster_(seed, run_, count_, recorded) {}

  /// Returns whether the failures had to be counted.
  bool run() {
    for (int i = 0; i < count_; ++i)
      cluster_.start(i);
    REQUIRE(cluster_.run_until(cluster_.now + 10s, [this] { return all_run(); }));
    cluster_.run_until(cluster_.now + up_to(5'000));
    begin_silence();
    const int failures = 1 + static_cast<int>(dice_.below(2));
    for (int i = 0; i < failures; ++i) {
      SimNode& node = *cluster_.nodes[dice_.below(cluster_.nodes.size())];
      const Duration silent = std::min<Duration>(node.cut_until - cluster_.now, 4s);
      cluster_.at(cluster_.now + up_to(static_cast<std::uint64_t>(silent / 1ms)),
                  [this, &node] { fail(node); });
    }
    // The next round may wait for the nodes of a silent one.
    cluster_.run_until(cluster_.now + 60s);
    cluster_.run_until(cluster_.now + UnseenWorkers::kMaxWait + 20s, [this] { return is_over(); });
    INFO(cluster_.describe());
    REQUIRE(failed_ > 0);
    REQUIRE(is_over());
    check();
    return is_counted();
  }

 private:
  Duration up_to(std::uint64_t ms) { return std::chrono::milliseconds(dice_.below(ms)); }
  bool all_run() const {
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(),
                       [](const auto& node) { return node->workers.generation != 0; });
  }
  void begin_silence() {
    generation_ = cluster_.nodes.front()->workers.generation;
    const bool peers_too = dice_.chance(70);
    for (const auto& node : cluster_.nodes) {
      // Before the host can take a node for lost, or after it has lost all nodes. In between, a
      // failure that is reported while the host stops the round for a lost node costs no restart.
      node->cut_until = cluster_.now + (dice_.chance(25) ? 1s + up_to(2'300) : 7s + up_to(20'000));
      if (peers_too) node->peers_cut_until = node->cut_until;
    }
    if (dice_.chance(30)) return;
    cluster_.kill_host(up_to(8'000));
    // A host that records nothing forgets what no living node knows.
    if (recorded_ && dice_.chance(50))
      cluster_.at(cluster_.now + 8s + up_to(20'000), [this] { cluster_.kill_host(up_to(1'000)); });
  }
  void fail(SimNode& node) {
    if (node.workers.generation != generation_) return;
    node.fail("rank 0 exited with 7");
    ++failed_;
  }
  bool is_counted() const { return cluster_.has_reported("job", generation_); }
  bool has_ended() const {
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(),
                       [](const auto& node) { return !node->end.empty(); });
  }
  bool is_over() const {
    if (is_counted() && run_.max_restarts == 0) return has_ended();
    return all_run() || has_ended();
  }
  void check() {
    if (!has_ended()) {
      const Rendezvous* run = cluster_.service->rendezvous("job");
      REQUIRE(run != nullptr);
      CHECK(run->restarts_used() <= 1);
      if (is_counted()) CHECK(run->restarts_used() == 1);
      return;
    }
    for (const auto& node : cluster_.nodes) {
      INFO("node " << node->index);
      CHECK_THAT(node->end, Catch::StartsWith("ended badly rank 0 exited with 7"));
    }
    for (const std::string& note : cluster_.notes)
      if (note.find("run_broken") != std::string::npos) FAIL(note);
  }

  Prng dice_;
  int count_;
  RunSettings run_;
  bool recorded_;
  Cluster cluster_;
  std::int64_t generation_ = 0;
  int failed_ = 0;
};

TEST_CASE(
    "native simulation: a failure while the host is silent counts, whichever node is back first",
    "[simulation]") {
  const bool recorded = GENERATE(true, false);
  int seeds = 0;
  int counted = 0;
  run_seeds(1'000, [&](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed << (recorded ? ", with a disk" : ""));
    ++seeds;
    if (Silence(seed, recorded).run()) ++counted;
  });
  if (seeds >= 100) CHECK(counted > seeds / 4);  // About half of them.
}

}  // namespace
}  // namespace muster::testing

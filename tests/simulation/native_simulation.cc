// The real muster nodes and their host: the effect of one fault, and of many faults together.
//
// MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> runs the seeds from 1 to n.

#include <set>

#include "tests/simulation/native_cluster.h"
#include "tests/support/seeds.h"

namespace muster::testing {
namespace {

// --- one fault at a time: no worker is restarted -------------------------------------------------

struct Whole {
  explicit Whole(std::uint64_t seed, bool recorded = false, int count = 4)
      : cluster(seed, {.min_nodes = count, .max_nodes = count, .max_restarts = 1}, count,
                recorded) {
    for (int i = 0; i < count; ++i)
      cluster.start(i);
    REQUIRE(cluster.run_until(cluster.now + 5s, [this] { return all_run(); }));
    cluster.run_until(cluster.now + std::chrono::milliseconds(cluster.prng.below(5'000)));
  }
  bool all_run() {
    for (const auto& node : cluster.nodes)
      if (node->workers.generation == 0) return false;
    return true;
  }
  void untouched_after(Duration time) {
    cluster.run_until(cluster.now + time);
    INFO(cluster.describe());
    for (const auto& node : cluster.nodes) {
      INFO("node " << node->index << ": " << node->last_restart);
      CHECK(node->restarts == 0);
      REQUIRE(node->participant.attached());
      REQUIRE(node->workers.generation != 0);
    }
    REQUIRE(cluster.service->rendezvous("job") != nullptr);
    CHECK(cluster.service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
  }
  /// Checks that the round still works: a failure restarts all nodes and is counted.
  void still_works() {
    cluster.nodes.back()->fail("rank 3 exited with 7");
    REQUIRE(cluster.run_until(cluster.now + 5s, [this] {
      return all_run() && cluster.service->rendezvous("job")->restarts_used() == 1;
    }));
  }
  Cluster cluster;
};

TEST_CASE("native simulation: a host that is killed and started again restarts no worker",
          "[simulation]") {
  const bool recorded = GENERATE(false, true);
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed, recorded);
    const auto down = std::chrono::milliseconds(whole.cluster.prng.below(100'000));
    whole.cluster.kill_host(down);
    whole.untouched_after(down + 10s);
    whole.still_works();
  }
}

TEST_CASE("native simulation: connections that are cut restart no worker", "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    for (int i = 0; i < 20; ++i) {
      whole.cluster.cut(*whole.cluster.nodes[whole.cluster.prng.below(4)]);
      whole.cluster.run_until(whole.cluster.now +
                              std::chrono::milliseconds(whole.cluster.prng.below(2'000)));
    }
    whole.untouched_after(5s);
    whole.still_works();
  }
}

TEST_CASE("native simulation: nodes do not flood a host that breaks each connection",
          "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    const int before = whole.cluster.welcomes;
    whole.cluster.breaks_after_welcome = true;
    for (const auto& node : whole.cluster.nodes)
      whole.cluster.cut(*node);
    whole.cluster.run_until(whole.cluster.now + 20s);
    CHECK(whole.cluster.welcomes - before > 4 * 10);
    CHECK(whole.cluster.welcomes - before < 4 * 30);
    whole.cluster.breaks_after_welcome = false;
    INFO(whole.cluster.describe());
    REQUIRE(whole.cluster.run_until(whole.cluster.now + 20s, [&] { return whole.all_run(); }));
  }
}

TEST_CASE("native simulation: a host that is stopped for a while restarts no worker",
          "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    const auto pause = std::chrono::milliseconds(whole.cluster.prng.below(150'000));
    whole.cluster.stop_host(pause);
    whole.untouched_after(pause + 10s);
    whole.still_works();
  }
}

TEST_CASE("native simulation: the loss of the host's machine restarts no worker", "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    const Duration gone = 6s + std::chrono::milliseconds(whole.cluster.prng.below(80'000));
    for (const auto& node : whole.cluster.nodes)
      node->cut_until = whole.cluster.now + gone;
    whole.cluster.kill_host(0s);  // The host that comes back is another machine.
    whole.untouched_after(gone + 10s);
    whole.still_works();
  }
}

TEST_CASE("native simulation: a node that is cut off from all is fenced in time", "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    SimNode& node = *whole.cluster.nodes[whole.cluster.prng.below(4)];
    node.cut_until = node.peers_cut_until = whole.cluster.now + 60s;
    const Instant cut = whole.cluster.now;
    REQUIRE(whole.cluster.run_until(cut + kFenceBound + kMaxStop,
                                    [&] { return node.workers.generation == 0; }));
    CHECK_THAT(node.last_restart, Catch::Contains("cut off"));
    REQUIRE(whole.cluster.run_until(cut + 80s, [&] { return whole.all_run(); }));
  }
}

TEST_CASE("native simulation: a failure while the host is away is counted when it is back",
          "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    whole.cluster.kill_host(std::chrono::milliseconds(500 + whole.cluster.prng.below(30'000)));
    whole.cluster.run_until(whole.cluster.now + 300ms);
    whole.cluster.nodes[1]->fail("rank 1 exited with 7");
    REQUIRE(whole.cluster.run_until(whole.cluster.now + 60s, [&] { return whole.all_run(); }));
    CHECK(whole.cluster.service->rendezvous("job")->restarts_used() == 1);
  }
}

TEST_CASE(
    "native simulation: a failure is counted once, whenever a host without a record is killed",
    "[simulation]") {
  const int failing_writes = GENERATE(0, 60, 100);
  run_seeds(300, [&](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed << ", " << failing_writes << " % of the writes fail");
    Whole whole(seed, failing_writes > 0);
    whole.cluster.failing_writes = failing_writes;
    whole.cluster.nodes[whole.cluster.prng.below(4)]->fail("rank 0 exited with 7");
    for (int kills = 0; kills < 3; ++kills) {
      whole.cluster.run_until(whole.cluster.now +
                              std::chrono::microseconds(whole.cluster.prng.below(20'000)));
      whole.cluster.kill_host(std::chrono::milliseconds(whole.cluster.prng.below(2'000)));
    }
    INFO(whole.cluster.describe());
    REQUIRE(whole.cluster.run_until(whole.cluster.now + 60s, [&] { return whole.all_run(); }));
    whole.cluster.run_until(whole.cluster.now + 20s);
    REQUIRE(whole.all_run());
    REQUIRE(whole.cluster.service->rendezvous("job") != nullptr);
    CHECK(whole.cluster.service->rendezvous("job")->restarts_used() == 1);
  });
}

TEST_CASE("native simulation: nodes that finish while the host is away end well", "[simulation]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    Whole whole(seed);
    whole.cluster.kill_host(std::chrono::milliseconds(500 + whole.cluster.prng.below(30'000)));
    for (const auto& node : whole.cluster.nodes) {
      whole.cluster.run_until(whole.cluster.now +
                              std::chrono::milliseconds(whole.cluster.prng.below(2'000)));
      node->finish();
    }
    whole.cluster.run_until(whole.cluster.now + 60s);
    INFO(whole.cluster.describe());
    for (const auto& node : whole.cluster.nodes)
      REQUIRE_THAT(node->end, Catch::StartsWith("ended well"));
    CHECK_THAT(whole.cluster.describe(), Catch::Contains("run_ended run=job succeeded=true"));
  }
}

// --- a host with a disk --------------------------------------------------------------------------

/// Runs a whole job with two failures, and kills the host at its `write`-th write. Returns whether
/// there were so many writes.
bool job_with_crash(std::uint64_t write, bool when_durable) {
  Cluster cluster(write, {.min_nodes = 3, .max_nodes = 3, .max_restarts = 2}, 3, true);
  cluster.crash_at_write = write;
  cluster.crash_when_durable = when_durable;
  for (int i = 0; i < 3; ++i)
    cluster.start(i);
  const auto all_run_in = [&](int restarts) {
    return cluster.run_until(cluster.now + 20s, [&] {
      const Rendezvous* run = cluster.service->rendezvous("job");
      for (const auto& node : cluster.nodes)
        if (node->workers.generation == 0) return false;
      return run != nullptr && run->restarts_used() == restarts &&
             run->phase() == Rendezvous::Phase::Running;
    });
  };
  INFO("killed at write " << write << (when_durable ? ", when it is durable" : ""));
  for (int failures = 0; failures < 3; ++failures) {
    INFO(cluster.describe());
    REQUIRE(all_run_in(failures));
    for (const auto& node : cluster.nodes)
      REQUIRE(node->restarts <= failures);  // The failed node itself gets no restart message.
    if (failures < 2)
      cluster.nodes[static_cast<std::size_t>(failures)]->fail("rank 0 exited with 7");
  }
  for (const auto& node : cluster.nodes) {
    cluster.run_until(cluster.now + 100ms);
    node->finish();
  }
  cluster.run_until(cluster.now + 20s);
  INFO(cluster.describe());
  for (const auto& node : cluster.nodes)
    REQUIRE(node->end == "ended well every node has finished");
  REQUIRE(cluster.service->history().size() == 1);
  CHECK(cluster.service->history().front().restarts == 2);
  return cluster.writes >= write;
}

TEST_CASE("native simulation: a host that is killed at any of its writes loses nothing",
          "[simulation]") {
  const bool when_durable = GENERATE(false, true);
  std::uint64_t write = 1;
  while (job_with_crash(write, when_durable))
    ++write;
  CHECK(write > 12);
}

// --- many faults at once -------------------------------------------------------------------------

class Turmoil {
 public:
  explicit Turmoil(std::uint64_t seed, bool recorded = false, bool disk_fails = false)
      : dice_(seed ^ 0x7e57),
        run_(draw_run()),
        // A job of one node has no other node to ask (docs/rendezvous_rules.md): it gets no spares.
        cluster_(seed, run_, run_.max_nodes == 1 ? 1 : 1 + static_cast<int>(dice_.below(5)),
                 recorded) {
    if (disk_fails) cluster_.failing_writes = 1 + static_cast<int>(dice_.below(100));
    if (!recorded || dice_.chance(50)) return;
    cluster_.crash_at_write = 1 + dice_.below(20);
    cluster_.crash_when_durable = dice_.chance(50);
  }

  void run() {
    for (int i = 0; i < static_cast<int>(cluster_.nodes.size()); ++i)
      cluster_.at(cluster_.now + up_to(4'000), [this, i] { cluster_.start(i); });
    const int mishaps = static_cast<int>(dice_.below(8));
    for (int i = 0; i < mishaps; ++i)
      cluster_.at(cluster_.now + up_to(50'000), [this] { mishap(); });
    cluster_.run_until(cluster_.now + 60s);
    // The next round may wait for the nodes of a silent one.
    const Duration most = UnseenWorkers::kMaxWait + 20s;
    const bool converged =
        cluster_.run_until(cluster_.now + most, [this] { return is_converged(); });
    INFO("at the end:\n" << cluster_.describe());
    REQUIRE(converged);
    cluster_.check_restarts("job");
    for (const std::string& note : cluster_.notes)
      if (note.find("run_broken") != std::string::npos) FAIL(note);
  }

 private:
  Duration up_to(std::uint64_t ms) { return std::chrono::milliseconds(dice_.below(ms)); }
  RunSettings draw_run() {
    RunSettings run;
    run.min_nodes = 1 + static_cast<int>(dice_.below(3));
    run.max_nodes = run.min_nodes + static_cast<int>(dice_.below(3));
    run.max_restarts = static_cast<int>(dice_.below(4));
    run.last_call_timeout = 3s;
    run.scale_policy = static_cast<ScalePolicy>(dice_.chance(70) ? 0 : dice_.below(3));
    return run;
  }
  void mishap() {
    SimNode& node = *cluster_.nodes[dice_.below(cluster_.nodes.size())];
    switch (dice_.below(14)) {
      case 0:
        if (node.connection) cluster_.cut(node);
        node.die();
        return;
      case 1:
      case 2:
        return cluster_.cut(node);
      case 3:
        return cluster_.kill_host(up_to(dice_.chance(50) ? 2'000 : 20'000));
      case 4:
        return cluster_.stop_host(up_to(15'000));
      case 5:
        node.cut_until = cluster_.now + up_to(20'000);
        if (dice_.chance(70)) node.peers_cut_until = node.cut_until;
        return;
      case 6: {
        const Instant until = cluster_.now + up_to(20'000);
        for (const auto& each : cluster_.nodes)
          each->cut_until = std::max(each->cut_until, until);
        return;
      }
      case 7:
        return node.fail("rank 0 exited with 1");
      case 8:
      case 9:
      case 10:
        return operate(node);
      case 11:
      case 12:
        return node.notify(up_to(20'000));
      default:
        return node.finish();
    }
  }
  /// An operator drains, excludes or allows a node.
  void operate(const SimNode& node) {
    using What = OperatorAsked::What;
    if (!cluster_.is_up() || cluster_.now < cluster_.stopped_until) return;
    const What what =
        dice_.chance(40) ? What::Allow : (dice_.chance(50) ? What::Drain : What::Exclude);
    const std::string name = "node" + std::to_string(node.index);
    OperatorAsked asked{what, name};
    if (what == What::Drain && dice_.chance(50)) {
      asked.notice = 1s + up_to(20'000);
      asked.reason = cluster_.give_notice(*asked.notice);
    }
    (void)cluster_.service->operate("job", asked, cluster_.time());
    cluster_.apply_effects();
  }
  /// All living nodes are in one round or know the end, or there are too few nodes and they wait.
  bool is_converged() {
    using Phase = Participant::Phase;
    const Rendezvous* rendezvous = cluster_.service->rendezvous("job");
    std::set<std::string> finished, doomed;
    if (rendezvous != nullptr)
      for (const NodeView& node : rendezvous->view(0, kMaxViewedNodes, cluster_.now).nodes) {
        if (node.state == NodeState::Finished) finished.insert(node.name.addr);
        if (node.notice) doomed.insert(node.name.addr);
      }
    std::set<std::int64_t> generations;
    int unfinished = 0, waiting = 0, working = 0, eligible = 0;
    for (const auto& node : cluster_.nodes) {
      if (!node->alive || node->participant.phase() == Phase::Over) continue;
      if (!node->participant.attached()) return false;
      const std::string name = "node" + std::to_string(node->index);
      const auto kept = rendezvous == nullptr ? std::nullopt : rendezvous->kept_out({name, 0, 0});
      const bool works = node->participant.phase() == Phase::Running;
      // A round does not continue with an excluded node, unless other nodes have finished.
      const bool excluded = kept && kept->how == KeptOutHow::Excluded;
      if (works && excluded && finished.empty()) return false;
      // The round of a notice has ended.
      if (works && node->told && node->told->deadline < cluster_.now) return false;
      // A node that has finished, is kept out or will go does not count for a further round.
      const bool outside = kept || finished.contains(name) || doomed.contains(name);
      unfinished += works || !outside ? 1 : 0;
      works ? ++working : ++waiting;
      // These nodes could have a place in the round.
      if (!works && !outside) ++eligible;
      if (works) generations.insert(node->workers.generation);
    }
    if (working + waiting == 0) return true;
    if (rendezvous == nullptr || generations.size() > 1) return false;
    if (working == 0)
      return rendezvous->phase() == Rendezvous::Phase::Gathering && unfinished < run_.min_nodes;
    if (rendezvous->phase() != Rendezvous::Phase::Running) return false;
    if (*generations.begin() != rendezvous->generation()) return false;
    // A spare waits for a place. Once a node has finished, or with another policy than Now, a node
    // that comes later waits for the next restart.
    return eligible == 0 || working >= run_.max_nodes || !finished.empty() ||
           run_.scale_policy != ScalePolicy::Now;
  }

  Prng dice_;
  RunSettings run_;
  Cluster cluster_;
};

TEST_CASE("native simulation: whatever breaks, only one round runs at a time, and the run ends",
          "[simulation]") {
  const auto [recorded, disk_fails] =
      GENERATE(std::pair(false, false), std::pair(true, false), std::pair(true, true));
  const auto run = [recorded, disk_fails](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed << (recorded ? ", with a disk" : "")
                        << (disk_fails ? " that fails" : ""));
    Turmoil(seed, recorded, disk_fails).run();
  };
  run_seeds(500, run);
}

}  // namespace
}  // namespace muster::testing

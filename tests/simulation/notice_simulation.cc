// Nodes that get the notice that they will go, at any moment, and one fault beside it.
//
// A round ends for a notice only at its deadline, or when all of its nodes have saved (checked by
// native_cluster.h). Nothing hangs: in the end all nodes that are left are in one round without
// those that will go, or the run has ended, or too few nodes are left for a round.
//
// MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> runs the seeds from 1 to n.

#include "tests/simulation/native_cluster.h"
#include "tests/support/seeds.h"

namespace muster::testing {
namespace {

class NoticeJob {
 public:
  NoticeJob(std::uint64_t seed, bool recorded)
      : dice_(seed ^ 0x907ce),
        count_(2 + static_cast<int>(dice_.below(3))),
        run_{.min_nodes = dice_.chance(50) ? count_ : 1 + static_cast<int>(dice_.below(2)),
             .max_nodes = count_,
             .max_restarts = 1,
             .last_call_timeout = 3s,
             .on_notice = static_cast<OnNotice>(dice_.below(3))},
        cluster_(seed, run_, count_ + (dice_.chance(40) ? 1 : 0), recorded) {}

  void run() {
    for (int i = 0; i < static_cast<int>(cluster_.nodes.size()); ++i)
      cluster_.start(i);
    REQUIRE(cluster_.run_until(cluster_.now + 10s, [this] { return working() == count_; }));
    cluster_.run_until(cluster_.now + up_to(5'000));
    for (const auto& node : cluster_.nodes)
      node->answers_notices = dice_.chance(85);
    const Duration left = 2s + up_to(40'000);
    const auto fault = dice_.below(10);
    if (fault > 0)
      cluster_.at(cluster_.now + up_to(static_cast<std::uint64_t>((left + 3s) / 1ms)),
                  [this, fault] { break_something(fault); });
    cluster_.at(cluster_.now + up_to(1'000), [this, left] { warn(left); });
    const bool again = dice_.chance(30);
    if (again) cluster_.at(cluster_.now + up_to(10'000), [this] { warn(2s + up_to(30'000)); });
    const std::int64_t generation = cluster_.service->rendezvous("job")->generation();
    cluster_.run_until(cluster_.now + left + 10s);
    const bool over = cluster_.run_until(cluster_.now + UnseenWorkers::kMaxWait + 60s,
                                         [this] { return is_over(); });
    INFO(cluster_.describe());
    REQUIRE(over);
    if (fault == 0 && !again) check_outcome(generation);
    for (const std::string& note : cluster_.notes)
      if (note.find("run_broken") != std::string::npos) FAIL(note);
  }

 private:
  Duration up_to(std::uint64_t ms) { return std::chrono::milliseconds(dice_.below(ms)); }
  int working() const {
    return static_cast<int>(
        std::count_if(cluster_.nodes.begin(), cluster_.nodes.end(),
                      [](const auto& node) { return node->alive && node->workers.generation; }));
  }
  /// A node of the round will go, or one that waits. It goes in three of four cases.
  void warn(Duration left) {
    SimNode& node = *cluster_.nodes[dice_.below(cluster_.nodes.size())];
    if (!node.alive || node.participant.phase() == Participant::Phase::Over) return;
    if (victim_ == nullptr) victim_ = &node;
    victim_worked_ = node.workers.generation != 0;
    const bool by_operator =
        dice_.chance(30) && cluster_.is_up() && cluster_.now >= cluster_.stopped_until;
    if (by_operator) {
      OperatorAsked asked{OperatorAsked::What::Drain, "node" + std::to_string(node.index)};
      asked.notice = left;
      asked.reason = cluster_.give_notice(left);
      (void)cluster_.service->operate("job", asked, cluster_.time());
      cluster_.apply_effects();
    } else {
      node.notify(left);
    }
    if (dice_.chance(75))
      cluster_.at(cluster_.now + left + 2s + up_to(2'000), [this, &node] {
        cluster_.cut(node);
        node.die();
      });
  }
  void break_something(std::uint64_t fault) {
    SimNode& node = *cluster_.nodes[dice_.below(cluster_.nodes.size())];
    switch (fault) {
      case 1:
      case 2:
        return cluster_.kill_host(up_to(dice_.chance(50) ? 2'000 : 15'000));
      case 3:
        return cluster_.stop_host(up_to(10'000));
      case 4:
        if (victim_ == nullptr) return;
        cluster_.cut(*victim_);
        return victim_->die();
      case 5:
        return cluster_.cut(node);
      case 6:
        node.cut_until = cluster_.now + up_to(15'000);
        if (dice_.chance(70)) node.peers_cut_until = node.cut_until;
        return;
      case 7:
        return node.fail("rank 0 exited with 1");
      case 8:
        return node.finish();
      default:
        if (!cluster_.is_up() || cluster_.now < cluster_.stopped_until) return;
        (void)cluster_.service->operate(
            "job", {OperatorAsked::What::Allow, "node" + std::to_string(node.index)},
            cluster_.time());
        return cluster_.apply_effects();
    }
  }
  bool is_over() const {
    using Phase = Participant::Phase;
    const Rendezvous* run = cluster_.service->rendezvous("job");
    std::set<std::string> outside;
    if (run != nullptr)
      for (const NodeView& node : run->view(0, kMaxViewedNodes, cluster_.now).nodes)
        if (node.notice || node.kept_out || node.state == NodeState::Finished)
          outside.insert(node.name.addr);
    std::set<std::int64_t> generations;
    int eligible = 0;
    for (const auto& node : cluster_.nodes) {
      if (!node->alive || node->participant.phase() == Phase::Over) continue;
      if (!node->participant.attached()) return false;
      const bool works = node->participant.phase() == Phase::Running;
      if (works) generations.insert(node->workers.generation);
      // A round that was told has ended.
      if (works && node->told) return false;
      if (works || !outside.contains("node" + std::to_string(node->index))) ++eligible;
    }
    if (generations.size() > 1) return false;
    if (generations.empty()) return run == nullptr || run->outcome() || eligible < run_.min_nodes;
    return run != nullptr && run->phase() == Rendezvous::Phase::Running &&
           *generations.begin() == run->generation();
  }
  /// Nothing else has happened: the notice alone decides.
  void check_outcome(std::int64_t generation) const {
    if (victim_ == nullptr || !victim_worked_) return;
    const Rendezvous* run = cluster_.service->rendezvous("job");
    REQUIRE(run != nullptr);
    CHECK(run->restarts_used() == 0);
    const int others = static_cast<int>(cluster_.nodes.size()) - 1;
    const bool stops = run_.on_notice == OnNotice::Stop ||
                       (run_.on_notice == OnNotice::Auto && others < run_.min_nodes);
    CHECK((run->outcome() && run->outcome()->preempted) == stops);
    if (stops || others < run_.min_nodes) return;
    CHECK(run->generation() > generation);
    CHECK(working() == std::min(others, run_.max_nodes));
    CHECK(victim_->workers.generation == 0);
  }

  Prng dice_;
  int count_;
  RunSettings run_;
  Cluster cluster_;
  SimNode* victim_ = nullptr;
  bool victim_worked_ = false;
};

TEST_CASE("native simulation: a notice ends its round in time, and never too early",
          "[simulation]") {
  const bool recorded = GENERATE(false, true);
  run_seeds(1'000, [&](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed << (recorded ? ", with a disk" : ""));
    NoticeJob(seed, recorded).run();
  });
}

/// The deadline passes while a recorded host is away: it must not begin anew with the time.
TEST_CASE("native simulation: a host that was started again knows the deadline of a notice",
          "[simulation]") {
  run_seeds(300, [&](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed);
    Cluster cluster(seed, {.min_nodes = 3, .max_nodes = 3, .max_restarts = 1}, 3, true);
    for (int i = 0; i < 3; ++i) {
      cluster.nodes[static_cast<std::size_t>(i)]->answers_notices = false;
      cluster.start(i);
    }
    const auto all_told = [&] {
      return std::all_of(cluster.nodes.begin(), cluster.nodes.end(),
                         [](const auto& node) { return node->told.has_value(); });
    };
    cluster.run_until(cluster.now + 5s);
    // Of an operator: no node can tell it to the host again.
    OperatorAsked asked{OperatorAsked::What::Drain, "node1"};
    asked.notice = 20s;
    asked.reason = cluster.give_notice(20s);
    const Instant deadline = cluster.now + 20s;
    REQUIRE(cluster.service->operate("job", asked, cluster.time()) == "");
    cluster.apply_effects();
    REQUIRE(cluster.run_until(cluster.now + 2s, all_told));
    cluster.run_until(cluster.now + 1s);
    cluster.kill_host(std::chrono::milliseconds(500 + cluster.prng.below(10'000)));
    cluster.run_until(deadline - 10ms);
    INFO(cluster.describe());
    for (const auto& node : cluster.nodes)
      REQUIRE(node->workers.generation != 0);
    cluster.run_until(deadline + 1s);
    for (const auto& node : cluster.nodes)
      REQUIRE_THAT(node->end, Catch::Contains("the job was stopped for that"));
  });
}

}  // namespace
}  // namespace muster::testing

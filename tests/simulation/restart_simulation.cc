// Restarts with budgets: workers that fail, hang, get further or not, nodes that are lost, and a
// host that is killed and started again with its record.
//
// Never more restarts than the budgets allow; and a job whose attempts get further is not ended as
// one that gets no further. MUSTER_SEED=<seed> runs one seed again.

#include "tests/simulation/native_cluster.h"
#include "tests/support/seeds.h"

namespace muster::testing {
namespace {

class Restarts {
 public:
  explicit Restarts(std::uint64_t seed)
      : dice_(seed ^ 0x4e57a475),
        count_(2 + static_cast<int>(dice_.below(2))),
        run_{.min_nodes = count_,
             .max_nodes = count_,
             .max_restarts = static_cast<int>(dice_.below(6)),
             .last_call_timeout = 3s},
        progress_percent_(dice_.below(101)),
        cluster_(seed, with_policy(), count_, true) {}

  /// Returns whether the run has ended as one that gets no further.
  bool run() {
    for (int i = 0; i < count_; ++i)
      cluster_.start(i);
    for (int attempt = 0; attempt < 30 && !has_ended(); ++attempt) {
      INFO("attempt " << attempt << "\n" << cluster_.describe());
      REQUIRE(cluster_.run_until(cluster_.now + 300s, [this] { return all_run() || has_ended(); }));
      if (has_ended()) break;
      play_attempt();
      cluster_.run_until(cluster_.now + 5s);
      check_budgets();
    }
    INFO(cluster_.describe());
    for (const std::string& note : cluster_.notes)
      if (note.find("run_broken") != std::string::npos) FAIL(note);
    return check_end();
  }

 private:
  RunSettings& with_policy() {
    RestartPolicy policy{.on = dice_.chance(80)};
    if (policy.on && dice_.chance(50)) policy.hangs = static_cast<int>(dice_.below(4));
    if (policy.on && dice_.chance(50)) policy.nodes = static_cast<int>(dice_.below(4));
    run_.restart_policy = policy;
    return run_;
  }
  SimNode& any_node() {
    for (;;) {
      SimNode& node = *cluster_.nodes[dice_.below(cluster_.nodes.size())];
      if (node.alive) return node;
    }
  }
  bool all_run() const {
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(), [](const auto& node) {
      return !node->alive || node->workers.generation != 0;
    });
  }
  bool has_ended() const {
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(),
                       [](const auto& node) { return !node->alive || !node->end.empty(); });
  }
  void play_attempt() {
    made_progress_ = dice_.below(100) < progress_percent_;
    const auto wait = [this](std::uint64_t ms) {
      cluster_.run_until(cluster_.now + std::chrono::milliseconds(dice_.below(ms)));
    };
    wait(90'000);
    // Steps up to the best one repeat what was done before.
    if (dice_.chance(50) && best_ > 0) any_node().feed(Participant::ProgressMade{best_});
    if (made_progress_) {
      best_ += 1 + static_cast<std::int64_t>(dice_.below(10));
      any_node().feed(Participant::ProgressMade{best_});
    }
    cluster_.run_until(cluster_.now + 1s);
    if (dice_.chance(20)) {  // All nodes come back, and tell what the host may have lost.
      cluster_.kill_host(std::chrono::milliseconds(dice_.below(1'000)));
      cluster_.run_until(cluster_.now + 4s);
    }
    SimNode& node = any_node();
    const bool leaves = dice_.chance(25);
    const bool is_free = leaves && !(run_.restart_policy->on && run_.restart_policy->nodes);
    if (made_progress_) row_ = 0;
    if (!made_progress_ && !is_free) ++row_;
    if (leaves) return replace(node);
    node.hangs = dice_.chance(30);
    node.fail(node.hangs ? "rank 0 was killed by SIGABRT" : "rank 0 exited with 7");
  }
  /// The node has left. Another agent comes in its place, unless the run has ended.
  void replace(SimNode& node) {
    node.feed(Participant::LeaveAsked{});
    cluster_.run_until(cluster_.now + 1s);
    node.die();
    if (has_ended()) return;
    const SimNode& fresh = cluster_.add_node("job", run_);
    cluster_.start(fresh.index);
  }
  void check_budgets() const {
    const Rendezvous* run = cluster_.service->rendezvous("job");
    if (run == nullptr) return;
    const RestartCosts& costs = run->restart_costs();
    const RestartPolicy policy = run_.restart_policy.value_or(RestartPolicy{});
    CHECK(costs.failures <= run_.max_restarts);
    CHECK(costs.hangs <= policy.hangs.value_or(0));
    CHECK(costs.nodes <= policy.nodes.value_or(0));
    CHECK(run->restarts_used() <= run_.max_restarts + policy.hangs.value_or(0));
  }
  bool check_end() const {
    bool hopeless = false;
    for (const auto& node : cluster_.nodes)
      hopeless = hopeless || node->is_hopeless;
    if (!hopeless) return false;
    CHECK(run_.restart_policy->on);
    CHECK(row_ >= kAttemptsWithoutProgress);
    return true;
  }

  Prng dice_;
  int count_;
  RunSettings run_;
  std::uint64_t progress_percent_;
  Cluster cluster_;
  std::int64_t best_ = 0;
  bool made_progress_ = false;
  int row_ = 0;  // Attempts in a row that ended before any progress.
};

TEST_CASE("native simulation: restarts stay within their budgets, and progress keeps a job going",
          "[simulation]") {
  int seeds = 0;
  int hopeless = 0;
  run_seeds(1'000, [&](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed);
    ++seeds;
    if (Restarts(seed).run()) ++hopeless;
  });
  if (seeds >= 100) CHECK(hopeless > seeds / 50);
}

}  // namespace
}  // namespace muster::testing

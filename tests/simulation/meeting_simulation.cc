// All kinds of nodes in one run, and strangers beside them: NativeParticipant through the native
// door, the model of torchrun and C10dParticipant through the c10d door, at one RunService, which
// gets the bytes of both codecs.
//
// Faults: the host freezes, and connections break at any point, also those of nodes that wait at
// the exit barrier. Strangers say hello, join their own runs, and send forged, replayed and torn
// requests.
//
// MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> runs the seeds from 1 to n.

#include "tests/simulation/stranger.h"
#include "tests/support/seeds.h"

namespace muster::testing {
namespace {

constexpr int kNatives = 2;
constexpr int kNodes = 4;
constexpr std::size_t kRuns = 4;

RunSettings settings_of_job() {
  RunSettings run;
  run.min_nodes = run.max_nodes = kNodes;
  run.max_restarts = 10;  // Larger than the number of mishaps in a run.
  return run;
}

class Meeting {
 public:
  explicit Meeting(std::uint64_t seed)
      : dice_(seed ^ 0x3ee7),
        cluster_(seed, settings_of_job(), kNatives, false, host_of_runs(kRuns)),
        door_(cluster_) {
    const std::string key = std::string(kStateKeyPrefix) + "job";
    members_.push_back(
        std::make_unique<TorchMember>(door_, cluster_, key, NodeName{"torch", 200, 0},
                                      TorchSettings{.min_nodes = kNodes, .max_nodes = kNodes}));
    RendezvousSettings settings;
    settings.run_id = "job";
    settings.run = settings_of_job();
    members_.push_back(
        std::make_unique<MusterMember>(door_, cluster_, key, NodeName{"old", 300, 0}, settings));
    for (int i = 0; i < 2; ++i)
      strangers_.push_back(std::make_unique<Stranger>(cluster_, door_, dice_.below(1'000'000)));
  }

  void run() {
    for (int i = 0; i < kNatives; ++i)
      cluster_.at(cluster_.now + up_to(4'000), [this, i] { cluster_.start(i); });
    for (const auto& member : members_)
      cluster_.at(cluster_.now + up_to(4'000), [&member] { member->start(); });
    for (int i = 0; i < 60; ++i)
      cluster_.at(cluster_.now + up_to(60'000), [this] {
        strangers_[dice_.below(strangers_.size())]->act(members_.front()->last_text());
        check_invariants();
      });
    const int mishaps = static_cast<int>(dice_.below(6));
    for (int i = 0; i < mishaps; ++i)
      cluster_.at(cluster_.now + up_to(50'000), [this] { mishap(); });
    cluster_.run_until(cluster_.now + 70s);
    REQUIRE_FALSE(is_over());
    if (!cluster_.run_until(cluster_.now + 200s, [this] { return all_work(); }))
      FAIL("they do not meet:\n" << describe());
    end();
  }

 private:
  Duration up_to(std::uint64_t ms) { return std::chrono::milliseconds(dice_.below(ms)); }

  void mishap() {
    switch (dice_.below(4)) {
      case 0:
        return cluster_.stop_host(up_to(12'000));
      case 1:
        return cluster_.cut(*cluster_.nodes[dice_.below(kNatives)]);
      case 2:
        return members_[dice_.below(members_.size())]->cut();
      default:
        return cluster_.nodes[dice_.below(kNatives)]->fail("rank 0 exited with 1");
    }
  }

  /// Whether all four nodes are in the newest round.
  bool all_work() const {
    const Rendezvous* job = cluster_.service->rendezvous("job");
    if (job == nullptr || job->phase() != Rendezvous::Phase::Running) return false;
    for (const auto& node : cluster_.nodes)
      if (node->workers.generation != job->generation()) return false;
    return std::all_of(members_.begin(), members_.end(),
                       [&](const auto& member) { return member->round() == job->round(); });
  }

  /// Ends the job. The host may freeze while nodes wait for the others to finish.
  void end() {
    for (const auto& member : members_)
      cluster_.at(cluster_.now + up_to(3'000), [&member] { member->finish(); });
    for (const auto& node : cluster_.nodes)
      cluster_.at(cluster_.now + up_to(9'000), [&node] { node->finish(); });
    if (dice_.chance(50))
      cluster_.at(cluster_.now + up_to(6'000), [this] { cluster_.stop_host(up_to(4'000)); });
    if (!cluster_.run_until(cluster_.now + 40s, [this] { return all_wait() || is_over(); }))
      FAIL("not all reach the exit barrier:\n" << describe());
    for (const auto& member : members_)
      cluster_.at(cluster_.now + up_to(1'000), [&member] { member->leave(); });
    for (const auto& node : cluster_.nodes)
      cluster_.at(cluster_.now + up_to(1'000),
                  [&node] { node->feed(Participant::ExitBarrierLeft{}); });
    cluster_.run_until(cluster_.now + 40s);
    check_invariants();
    if (!is_over()) FAIL("the job does not end:\n" << describe());
  }
  bool all_wait() const {
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(),
                       [](const auto& node) { return node->at_exit_barrier; }) &&
           std::all_of(members_.begin(), members_.end(),
                       [](const auto& member) { return member->at_exit_barrier(); });
  }
  bool is_over() const {
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(),
                       [](const auto& node) { return !node->end.empty(); });
  }

  void check_invariants() {
    if (cluster_.service->runs() > kRuns) FAIL("too many runs");
    for (const std::string& note : cluster_.notes) {
      if (note.find("run_broken") != std::string::npos) FAIL(note << "\n" << describe());
      for (const char c : note)
        if (c < ' ' || c == 0x7f) FAIL("a control character in the log");
    }
  }

  std::string describe() const {
    std::string text;
    for (const auto& member : members_)
      text += member->describe();
    for (const std::string& refusal : door_.refusals)
      text += "refused: " + refusal + "\n";
    return text + cluster_.describe();
  }

  Prng dice_;
  Cluster cluster_;
  C10dDoor door_;
  std::vector<std::unique_ptr<C10dMember>> members_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
};

TEST_CASE("meeting simulation: all kinds of nodes end a job together, despite strangers",
          "[simulation]") {
  run_seeds(60, [](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed);
    Meeting(seed).run();
  });
}

}  // namespace
}  // namespace muster::testing

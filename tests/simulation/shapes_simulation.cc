// Two runs at one host, in seeded shapes: with a fixed size or elastic, with or without spares,
// with any mixture of muster and torchrun nodes, and a host with or without a disk.
//
// One run, "job", has mishaps and strangers: nodes fail and die, and connections break. The other
// run, "calm", has none and must end as if it were alone. The host is frozen for longer than any
// lease. A host with a disk is also killed, at a seeded one of its writes and at any time. At the
// end all nodes leave, and the host must hold nothing any more.
//
// MUSTER_SEED=<seed> runs one seed again, MUSTER_SEEDS=<n> runs the seeds from 1 to n.

#include "tests/simulation/stranger.h"
#include "tests/support/seeds.h"

namespace muster::testing {
namespace {

constexpr std::size_t kMaxRuns = 5;
/// The limit for the state texts of one run: more than any state of so few nodes needs.
constexpr std::size_t kMaxBytesOfRun = 16 << 10;

struct Shape {
  RunSettings run;
  int natives = 0;
  int torchruns = 0;
  int by_c10d = 0;  // muster nodes that use the c10d door.
  int count() const { return natives + torchruns + by_c10d; }
};

/// The nodes of one run, through both doors.
class Job {
 public:
  Job(Cluster& cluster, C10dDoor& door, std::string id, const Shape& shape, int port)
      : cluster_(cluster), id_(std::move(id)), shape_(shape) {
    for (int i = 0; i < shape.natives; ++i)
      natives_.push_back(&cluster.add_node(id_, shape.run));
    const std::string key = std::string(kStateKeyPrefix) + id_;
    const TorchSettings torch{.min_nodes = shape.run.min_nodes,
                              .max_nodes = shape.run.max_nodes,
                              .last_call = shape.run.last_call_timeout};
    for (int i = 0; i < shape.torchruns; ++i)
      members_.push_back(
          std::make_unique<TorchMember>(door, cluster, key, NodeName{"torch", port + i, 0}, torch));
    RendezvousSettings settings;
    settings.run_id = id_;
    settings.run = shape.run;
    for (int i = 0; i < shape.by_c10d; ++i)
      members_.push_back(std::make_unique<MusterMember>(door, cluster, key,
                                                        NodeName{"old", port + i, 0}, settings));
  }

  template <typename UpTo>
  void start(const UpTo& up_to) {
    for (SimNode* node : natives_)
      cluster_.at(cluster_.now + up_to(4'000), [this, node] { cluster_.start(node->index); });
    for (const auto& member : members_)
      cluster_.at(cluster_.now + up_to(4'000), [&member] { member->start(); });
  }

  bool works(const SimNode& node) const {
    const Rendezvous* run = cluster_.service->rendezvous(id_);
    return run != nullptr && node.workers.generation == run->generation();
  }
  bool works(const C10dMember& member) const {
    const Rendezvous* run = cluster_.service->rendezvous(id_);
    return run != nullptr && member.round() == run->round();
  }

  /// As many nodes as fit are in the newest round, and no node is in an older one.
  bool is_settled() const {
    const Rendezvous* run = cluster_.service->rendezvous(id_);
    if (run == nullptr || run->phase() != Rendezvous::Phase::Running) return false;
    int living = 0, working = 0;
    for (const SimNode* node : natives_) {
      if (!node->alive || !node->end.empty()) continue;
      if (!works(*node) && node->workers.generation != 0) return false;
      ++living;
      working += works(*node) ? 1 : 0;
    }
    for (const auto& member : members_) {
      if (!member->alive()) continue;
      if (!works(*member) && member->round()) return false;
      ++living;
      working += works(*member) ? 1 : 0;
    }
    return working == std::min(living, shape_.run.max_nodes);
  }

  int living() const {
    return static_cast<int>(std::count_if(natives_.begin(), natives_.end(),
                                          [](const SimNode* node) { return node->alive; }) +
                            std::count_if(members_.begin(), members_.end(),
                                          [](const auto& member) { return member->alive(); }));
  }
  int restarts_of_nodes() const {
    int restarts = 0;
    for (const SimNode* node : natives_)
      restarts += node->restarts;
    return restarts;
  }

  /// The workers of all nodes of the round end with success.
  template <typename UpTo>
  void finish(const UpTo& up_to) {
    for (SimNode* node : natives_)
      if (node->alive && works(*node)) {
        finishing_.push_back(node);
        cluster_.at(cluster_.now + up_to(6'000), [node] { node->finish(); });
      } else if (node->alive && node->end.empty()) {
        surplus_.push_back(node);
        // It must be back, with a pause of 2 s, before the host forgets the run (5 s): nobody could
        // tell it the end after that.
        cluster_.at(cluster_.now + up_to(6'000), [this, node, length = up_to(2'500)] {
          cluster_.cut(*node);
          node->cut_until = cluster_.now + length;
        });
      }
    for (const auto& member : members_)
      if (member->alive() && works(*member)) {
        finishing_members_.push_back(member.get());
        cluster_.at(cluster_.now + up_to(3'000), [&member] { member->finish(); });
      }
  }
  bool all_wait() const {
    return std::all_of(
               finishing_.begin(), finishing_.end(),
               [](const SimNode* node) { return node->at_exit_barrier || !node->end.empty(); }) &&
           std::all_of(finishing_members_.begin(), finishing_members_.end(),
                       [](const C10dMember* member) { return member->at_exit_barrier(); });
  }
  void leave() {
    for (C10dMember* member : finishing_members_)
      member->leave();
    for (SimNode* node : finishing_)
      node->feed(Participant::ExitBarrierLeft{});
  }
  /// Whether all native nodes of the round ended with success. Nodes without a place may have
  /// missed the end, but know it, too. (If torchrun nodes have closed the run, such a node gives
  /// up.)
  bool ended_well() const {
    const auto well = [](const SimNode* node) { return node->end.starts_with("ended well"); };
    return std::all_of(finishing_.begin(), finishing_.end(), well) &&
           (!members_.empty() || std::all_of(surplus_.begin(), surplus_.end(), well));
  }
  void die() {
    for (SimNode* node : natives_)
      kill(*node);
    for (const auto& member : members_)
      member->die();
  }

  /// One of the mishaps that concern only this run.
  void mishap(Prng& dice) {
    const int which = static_cast<int>(dice.below(static_cast<std::uint64_t>(shape_.count())));
    const bool dies = dice.chance(30) && living() > shape_.run.min_nodes;
    if (which >= shape_.natives) {
      C10dMember& member = *members_[static_cast<std::size_t>(which - shape_.natives)];
      return dies ? member.die() : member.cut();
    }
    SimNode& node = *natives_[static_cast<std::size_t>(which)];
    if (dies) return kill(node);
    dice.chance(50) ? cluster_.cut(node) : node.fail("rank 0 exited with 1");
  }
  std::string text() const { return members_.empty() ? "" : members_.front()->last_text(); }
  std::string describe() const {
    std::string text = id_ + ": " + std::to_string(shape_.run.min_nodes) + " to " +
                       std::to_string(shape_.run.max_nodes) + " nodes\n";
    for (const auto& member : members_)
      text += (member->alive() ? "" : "dead ") + member->describe();
    return text;
  }

 private:
  void kill(SimNode& node) {
    cluster_.cut(node);
    node.die();
  }

  Cluster& cluster_;
  std::string id_;
  Shape shape_;
  std::vector<SimNode*> natives_;
  std::vector<std::unique_ptr<C10dMember>> members_;
  std::vector<SimNode*> finishing_;
  std::vector<SimNode*> surplus_;  // Without a place when the others finished.
  std::vector<C10dMember*> finishing_members_;
};

class Shapes {
 public:
  explicit Shapes(std::uint64_t seed)
      : dice_(seed ^ 0x54a9e),
        recorded_(dice_.chance(60)),
        cluster_(seed, {}, 0, recorded_, host_of_runs(kMaxRuns)),
        door_(cluster_),
        job_(cluster_, door_, "job", draw_shape(), 200),
        calm_(cluster_, door_, "calm", shape_of_calm(), 300) {
    for (int i = 0; i < 2; ++i)
      strangers_.push_back(std::make_unique<Stranger>(cluster_, door_, dice_.below(1'000'000)));
    if (!recorded_ || dice_.chance(30)) return;
    cluster_.crash_at_write = 1 + seed % 60;
    cluster_.crash_when_durable = dice_.chance(50);
    host_suffers_ = true;
  }

  void run() {
    const auto up_to = [this](std::uint64_t ms) { return this->up_to(ms); };
    job_.start(up_to);
    calm_.start(up_to);
    for (int i = 0; i < 60; ++i)
      cluster_.at(cluster_.now + up_to(60'000), [this] {
        strangers_[dice_.below(strangers_.size())]->act(job_.text());
        check_invariants();
      });
    for (auto mishaps = dice_.below(6); mishaps-- > 0;)
      cluster_.at(cluster_.now + up_to(50'000), [this] { job_.mishap(dice_); });
    if (dice_.chance(60)) host_suffers(up_to(50'000));
    cluster_.run_until(cluster_.now + 80s);
    if (!cluster_.run_until(cluster_.now + 300s,
                            [this] { return job_.is_settled() && calm_.is_settled(); }))
      FAIL("they do not meet:\n" << describe());
    check_invariants();
    if (!host_suffers_ && calm_.restarts_of_nodes() != 0)
      FAIL("the calm run was disturbed:\n" << describe());
    end();
  }

 private:
  Duration up_to(std::uint64_t ms) { return std::chrono::milliseconds(dice_.below(ms)); }

  Shape draw_shape() {
    Shape shape;
    shape.natives = static_cast<int>(dice_.below(4));
    shape.torchruns = static_cast<int>(dice_.below(3));
    shape.by_c10d = static_cast<int>(dice_.below(2));
    const int spares = static_cast<int>(dice_.below(3));
    shape.natives = std::max(shape.natives, 2 - shape.torchruns);
    const int count = shape.count();
    shape.run.max_nodes = std::max(2, count - spares + (dice_.chance(20) ? 1 : 0));
    shape.run.min_nodes = std::min(count, shape.run.max_nodes);
    if (dice_.chance(50)) shape.run.min_nodes = std::max(1, shape.run.min_nodes - 1);
    if (shape.run.min_nodes < 2) shape.run.min_nodes = std::min(2, shape.run.max_nodes);
    if (shape.run.min_nodes > count) shape.run.min_nodes = count;
    shape.run.last_call_timeout = 3s;
    shape.run.max_restarts = 20;  // Larger than the number of mishaps in a run.
    return shape;
  }
  static Shape shape_of_calm() {
    Shape shape{.run = {}, .natives = 2, .torchruns = 1, .by_c10d = 0};
    shape.run.min_nodes = shape.run.max_nodes = 3;
    shape.run.max_restarts = 20;
    return shape;
  }

  void host_suffers(Duration after) {
    host_suffers_ = true;
    const Duration how_long = up_to(30'000);
    const bool killed = recorded_ && dice_.chance(50);
    cluster_.at(cluster_.now + after, [this, how_long, killed] {
      if (!cluster_.is_up()) return;
      killed ? cluster_.kill_host(how_long) : cluster_.stop_host(how_long);
    });
  }

  void end() {
    // The host is not killed any more: torchrun nodes cannot resume at a restarted host, so a round
    // of which some nodes have finished could not be formed again. The native simulation kills the
    // host of native nodes also at this point.
    cluster_.crash_at_write = 0;
    const auto up_to = [this](std::uint64_t ms) { return this->up_to(ms); };
    for (Job* job : {&job_, &calm_})
      job->finish(up_to);
    if (dice_.chance(50))
      cluster_.at(cluster_.now + up_to(6'000), [this] { cluster_.stop_host(this->up_to(4'000)); });
    for (Job* job : {&job_, &calm_}) {
      if (!cluster_.run_until(cluster_.now + 60s, [job] { return job->all_wait(); }))
        FAIL("not all reach the exit barrier:\n" << describe());
    }
    for (Job* job : {&job_, &calm_})
      job->leave();
    cluster_.run_until(cluster_.now + 40s);
    check_invariants();
    if (!job_.ended_well() || !calm_.ended_well()) FAIL("no good end:\n" << describe());
    nobody_is_left();
  }

  /// When all nodes are gone, the host must hold no more than before they came.
  void nobody_is_left() {
    for (Job* job : {&job_, &calm_})
      job->die();
    for (const auto& stranger : strangers_)
      stranger->leave();
    // A host with a record waits 10 minutes for the first node of a run.
    cluster_.run_until(cluster_.now + (recorded_ ? 700s : 120s));
    check_invariants();
    const MemoryAccount& account = cluster_.accounts.back();
    if (cluster_.service->runs() != 0 || account.blocks != 0 || account.kept != 0 ||
        cluster_.service->state_clients() != 0)
      FAIL("the host still holds " << cluster_.service->runs() << " runs, " << account.blocks
                                   << " bytes, " << cluster_.service->state_clients()
                                   << " connections:\n"
                                   << describe());
    if (cluster_.state && cluster_.state->runs() != 0) FAIL("the disk still holds runs");
  }

  void check_invariants() {
    if (cluster_.service->runs() > kMaxRuns) FAIL("too many runs");
    for (const char* run_id : {"a", "b"})
      if (const Rendezvous* run = cluster_.service->rendezvous(run_id);
          run != nullptr && !run->counts_are_right())
        FAIL("wrong counts of members in " << run_id << "\n" << describe());
    const MemoryAccount& account = cluster_.accounts.back();
    if (account.kept > kMaxRuns * kMaxBytesOfRun || account.blocks > 2 * kMaxRuns * kMaxBytesOfRun)
      FAIL("the host holds " << account.kept << " and " << account.blocks << " bytes");
    for (; notes_seen_ < cluster_.notes.size(); ++notes_seen_) {
      const std::string& note = cluster_.notes[notes_seen_];
      if (note.find("run_broken") != std::string::npos) FAIL(note << "\n" << describe());
      for (const char c : note)
        if (c < ' ' || c == 0x7f) FAIL("a control character in the log");
    }
  }

  std::string describe() const {
    std::string text = recorded_ ? "with a disk\n" : "";
    for (const Job* job : {&job_, &calm_})
      text += job->describe();
    for (const std::string& refusal : door_.refusals)
      text += "refused: " + refusal + "\n";
    for (const char* run_id : {"a", "b"})
      if (const Rendezvous* run = cluster_.service->rendezvous(run_id))
        text += std::string(run_id) + ": " + std::to_string(run->members()) + " members, " +
                std::string(run->reason()) + "\n";
    return text + cluster_.describe();
  }

  Prng dice_;
  bool recorded_;
  bool host_suffers_ = false;
  Cluster cluster_;
  C10dDoor door_;
  Job job_, calm_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
  std::size_t notes_seen_ = 0;
};

TEST_CASE("shapes simulation: runs of all shapes end, and the host keeps nothing of them",
          "[simulation]") {
  run_seeds(60, [](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed);
    Shapes(seed).run();
  });
}

}  // namespace
}  // namespace muster::testing

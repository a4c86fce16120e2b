// Muster nodes and torchrun nodes (a model of them) on one register with compare-and-set, which is
// all that a store hosted by torchrun offers. First there are crashes, failures and newcomers, then
// none.

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>

#include <catch2/catch.hpp>

#include "rendezvous/torchrun/c10d_participant.h"
#include "rendezvous/torchrun/state_codec.h"
#include "tests/support/prng.h"
#include "tests/support/seeds.h"
#include "tests/support/torch_model.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

struct Register {
  RendezvousState state;
  std::uint64_t token = 0;
};

/// How the members see each round.
struct Views {
  // The largest world that muster nodes see: they must agree on it.
  std::map<std::int64_t, std::vector<NodeName>> worlds;
  std::map<std::int64_t, std::map<NodeName, std::int64_t>> ranks;
  std::function<bool(const NodeName&, std::int64_t round)> has_left;

  void rank(std::int64_t round, const NodeName& node, std::int64_t value) {
    auto& known = ranks[round];
    for (const auto& [other, taken] : known)
      if (other != node) REQUIRE(taken != value);
    const auto [entry, is_new] = known.try_emplace(node, value);
    REQUIRE(entry->second == value);
  }
  void world(const RoundReady& round, const NodeName& node) {
    const auto& known = worlds.try_emplace(round.round, round.nodes).first->second;
    // A torchrun node that fails leaves the state at once. If it has the last rank, the state does
    // not show a node that reads it later that somebody is missing. The round ends all the same:
    // the node that has left waits for the next one, or its heartbeat stops.
    REQUIRE(round.nodes.size() <= known.size());
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (i < round.nodes.size())
        REQUIRE(round.nodes[i] == known[i]);
      else
        REQUIRE(has_left(known[i], round.round));
    }
    rank(round.round, node, round.rank);
  }
};

struct Node {
  virtual ~Node() = default;
  virtual void tick(Register& store, Instant now, WallTime wall, Views& views) = 0;
  virtual void fail(Instant now) = 0;
  virtual bool running() const = 0;
  virtual std::int64_t round() const = 0;
  virtual const char* kind() const = 0;
  Instant next{};  // When the member is called again.
  std::int64_t skew_us = 0;
};

class MusterNode : public Node {
 public:
  MusterNode(const NodeName& name, const RendezvousSettings& settings, Instant now)
      : participant_(name, settings) {
    participant_.join(now);
  }
  void tick(Register& store, Instant now, WallTime wall, Views& views) override {
    next = now + 1s;
    // The last write is decided here: it wins only if the register has not changed meanwhile.
    if (pending_) {
      if (store.token == pending_->first) store = {std::move(pending_->second), store.token + 1};
      pending_.reset();
    }
    C10dStep step = participant_.step(store.state, now, wall);
    if (auto* write = std::get_if<WriteState>(&step)) {
      pending_ = {store.token, std::move(write->state)};
      next = now + 50ms;  // How long the write takes.
    } else if (const auto* ready = std::get_if<RoundReady>(&step)) {
      views.world(*ready, participant_.name());
      running_ = true;
      round_ = ready->round;
      settled_at_ = now + 1500ms;
    } else if (std::holds_alternative<RoundBroken>(step)) {
      fail(now);
      next = now;
    } else if (std::holds_alternative<JoinTimedOut>(step)) {
      FAIL("it gave up: " << participant_.progress());
    }
    if (running_ && now >= settled_at_) participant_.mark_round_seen_by_all();
  }
  void fail(Instant now) override {
    running_ = false;
    participant_.join(now);
  }
  bool running() const override { return running_; }
  std::int64_t round() const override { return round_; }
  const char* kind() const override { return "muster"; }

 private:
  C10dParticipant participant_;
  std::optional<std::pair<std::uint64_t, RendezvousState>> pending_;
  bool running_ = false;
  std::int64_t round_ = -1;
  Instant settled_at_{};
};

class TorchNode : public Node {
 public:
  TorchNode(const NodeName& name, const TorchSettings& settings, Instant now)
      : model_(name, settings), deadline_(now + 600s) {}

  void tick(Register& store, Instant now, WallTime wall, Views& views) override {
    if (dirty_ && store.token == token_) store = {model_.state, store.token + 1};
    dirty_ = false;
    model_.state = store.state;
    token_ = store.token;
    model_.sanitize(wall);
    next = now + 1s;
    const auto action = model_.decide(operation_, now, deadline_, wall);
    switch (action) {
      case TorchModel::Action::Sync:
        return;
      case TorchModel::Action::Finish:
        return finish(now, views);
      case TorchModel::Action::Closed:
      case TorchModel::Action::Graceful:
      case TorchModel::Action::TimedOut:
        FAIL("a torchrun node gave up");
        return;
      default:
        break;
    }
    model_.apply(action, wall);
    dirty_ = true;
    next = now + 50ms;
  }
  void fail(Instant now) override {
    running_ = false;
    operation_ = TorchModel::Operation::Exit;
    deadline_ = now + 600s;
  }
  bool running() const override { return running_; }
  std::int64_t round() const override { return round_; }
  const char* kind() const override { return "torchrun"; }

 private:
  void finish(Instant now, Views& views) {
    if (operation_ == TorchModel::Operation::Exit) {
      operation_ = TorchModel::Operation::Join;
      next = now;
    } else if (operation_ == TorchModel::Operation::Join) {
      running_ = true;
      round_ = model_.state.round;
      views.rank(round_, model_.name(), *model_.state.participants.find(model_.name()));
      operation_ = TorchModel::Operation::KeepAlive;
    } else {
      deadline_ = now + 5s;
      if (!model_.state.wait_list.empty()) fail(now);
    }
  }

  TorchModel model_;
  Instant deadline_;
  TorchModel::Operation operation_ = TorchModel::Operation::Join;
  std::uint64_t token_ = 0;
  bool dirty_ = false;
  bool running_ = false;
  std::int64_t round_ = -1;
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {
    settings_.run.min_nodes = 1 + static_cast<int>(random_.below(2));
    settings_.run.max_nodes = settings_.run.min_nodes + static_cast<int>(random_.below(4));
    settings_.run.scale_policy =
        static_cast<ScalePolicy>(random_.chance(50) ? 0 : random_.below(3));
    const auto count = static_cast<std::size_t>(settings_.run.min_nodes) + random_.below(5);
    for (std::size_t i = 0; i < count; ++i)
      add();
    views_.has_left = [this](const NodeName& name, std::int64_t round) {
      const auto node = nodes_.find(name);
      return node == nodes_.end() || !node->second->running() || node->second->round() != round;
    };
  }
  void run(Duration time, bool trouble) {
    const Instant end = now_ + time;
    for (; now_ < end; now_ += 50ms) {
      if (trouble && random_.below(400) == 0) disturb();
      for (auto& [name, node] : nodes_)
        if (node->next <= now_) {
          const std::uint64_t token = store_.token;
          node->tick(store_, now_, wall(*node), views_);
          if (store_.token != token) trace(name);
          node->next += std::chrono::milliseconds(random_.below(40));
        }
    }
  }
  std::string describe() const {
    const RendezvousState& state = store_.state;
    std::string text = "round " + std::to_string(state.round) + (state.complete ? " complete" : "");
    for (const auto& [name, rank] : state.participants)
      text += " in:" + to_string(name) + "=" + std::to_string(rank);
    for (const NodeName& name : state.wait_list)
      text += " waits:" + to_string(name);
    for (const NodeName& name : state.redundancy_list)
      text += " spare:" + to_string(name);
    for (const auto& [name, node] : nodes_)
      text += "\n" + to_string(name) + " " + node->kind() +
              (node->running() ? " runs " : " joins ") + std::to_string(node->round());
    return text;
  }
  void check() const {
    INFO(describe() << " min " << settings_.run.min_nodes << " max " << settings_.run.max_nodes);
    const auto max = static_cast<std::size_t>(settings_.run.max_nodes);
    const std::size_t expected = std::min(nodes_.size(), max);
    std::size_t running = 0;
    for (const auto& [name, node] : nodes_) {
      if (!node->running()) continue;
      ++running;
      INFO(to_string(name));
      CHECK(node->round() == store_.state.round);
      CHECK(store_.state.participants.contains(name));
    }
    CHECK(store_.state.complete);
    CHECK(store_.state.participants.size() == running);
    CHECK(store_.state.wait_list.empty());
    if (settings_.run.scale_policy == ScalePolicy::Now) CHECK(running == expected);
    // With another policy a newcomer waits for the next restart. A node of the round does not.
    for (const auto& [name, rank] : views_.ranks.at(store_.state.round)) {
      const auto node = nodes_.find(name);
      INFO(to_string(name));
      CHECK((node == nodes_.end() || node->second->running()));
    }
  }

 private:
  void trace(const NodeName& writer) const {
    if (!Trace::now().wanted()) return;
    Trace::now().add(now_.time_since_epoch().count());
    Trace::now().add(to_string(writer));
    Trace::now().add(encode_state(store_.state));
  }
  WallTime wall(const Node& node) const {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch());
    return {1'700'000'000'000'000 + us.count() + node.skew_us};
  }
  void add() {
    const NodeName name{"node" + std::to_string(random_.below(100)), ++pids_, 0};
    std::unique_ptr<Node> node;
    const TorchSettings torch{.min_nodes = settings_.run.min_nodes,
                              .max_nodes = settings_.run.max_nodes};
    if (nodes_.empty() || random_.chance(50))
      node = std::make_unique<MusterNode>(name, settings_, now_);
    else
      node = std::make_unique<TorchNode>(name, torch, now_);
    // torchrun nodes do not work with clocks that differ by more than some seconds.
    node->skew_us = static_cast<std::int64_t>(random_.below(4'000'000)) - 2'000'000;
    node->next = now_ + std::chrono::milliseconds(random_.below(300));
    nodes_.emplace(name, std::move(node));
  }
  std::size_t count_muster() const {
    return static_cast<std::size_t>(
        std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) {
          return dynamic_cast<const MusterNode*>(entry.second.get()) != nullptr;
        }));
  }
  void disturb() {
    auto victim = nodes_.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(random_.below(nodes_.size())));
    const auto what = random_.below(10);
    const bool spare_one = nodes_.size() > static_cast<std::size_t>(settings_.run.min_nodes);
    // If all nodes are torchrun's, surplus nodes restart the others without an end: one muster node
    // stays.
    const auto* muster = dynamic_cast<const MusterNode*>(victim->second.get());
    const bool last_muster = muster != nullptr && count_muster() == 1;
    if (what == 0 && spare_one && !last_muster)
      nodes_.erase(victim);  // The node vanishes as with kill -9.
    else if (what <= 2 && nodes_.size() < 10)
      add();
    else if (victim->second->running())
      victim->second->fail(now_);
  }

  Prng random_;
  Instant now_{std::chrono::hours(1)};
  RendezvousSettings settings_;
  Register store_;
  Views views_;
  std::map<NodeName, std::unique_ptr<Node>> nodes_;
  std::int64_t pids_ = 0;
};

TEST_CASE("c10d participants: with torchrun nodes on one register, they always meet again",
          "[simulation][rendezvous]") {
  run_seeds(400, [](std::uint64_t seed) {
    INFO("MUSTER_SEED=" << seed);
    World world(seed);
    world.run(std::chrono::seconds(120), true);
    world.run(std::chrono::seconds(180), false);
    world.check();
  });
}

}  // namespace
}  // namespace muster::testing

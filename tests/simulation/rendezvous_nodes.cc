#include "tests/simulation/rendezvous_nodes.h"

#include <catch2/catch.hpp>

namespace muster::testing {

using namespace std::chrono_literals;

// --- muster --------------------------------------------------------------------------------------

void MusterNode::start() {
  join();
  keep_alive();
}

void MusterNode::join() {
  phase_ = Phase::Joining;
  if (!connected_) return;
  world_.send(*this, NodeJoined{.from = connection,
                                .name = name_,
                                .instance = instance_,
                                .local_world_size = 2,
                                .role = "default",
                                .run = world_.options().run,
                                .muster_version = "test",
                                .last_round = known_round_,
                                .preferred_rank = role_.preferred,
                                .spare = role_.spare,
                                .life = told_by_,
                                .takes_notices = true});
  send_notice();
}

void MusterNode::notify(Duration left) {
  if (!alive_) return;
  goes_at_ = std::min(goes_at_.value_or(world_.now() + left), world_.now() + left);
  if (connected_) send_notice();
}

void MusterNode::send_notice() {
  if (!goes_at_) return;
  const Duration left = std::max(Duration::zero(), *goes_at_ - world_.now());
  world_.send(*this, NodeNotified{connection, left, "it will go", 0});
}

void MusterNode::on(const PreemptionNotice& message) {
  if (world_.prng().chance(20)) return;  // This node's workers do not answer.
  const auto takes = std::chrono::milliseconds(world_.prng().below(3'000));
  world_.at(takes, [this, round = message.round] {
    if (alive_ && connected_ && phase_ == Phase::Running && round_ == round)
      world_.send(*this, NodeSaved{connection, round});
  });
}

void MusterNode::keep_alive() {
  if (!alive_ || !connected_ || phase_ == Phase::Ended || phase_ == Phase::Refused) return;
  world_.send(*this, KeptAlive{connection});
  world_.at(1500ms, [this, mine = connection] {
    if (mine == connection) keep_alive();
  });
}

void MusterNode::on_lost() {
  connected_ = false;
  // The node's workers have finished, so the node can end.
  if (phase_ == Phase::Finished) phase_ = Phase::Ended;
  if (phase_ != Phase::Ended && phase_ != Phase::Refused) reconnect();
}

/// Tries to connect again, as NativeSession does, with random pauses.
void MusterNode::reconnect() {
  world_.at(std::chrono::milliseconds(50 + world_.prng().below(2'000)), [this] {
    if (!alive_ || phase_ == Phase::Ended) return;
    const bool parted = stalled_until > world_.now() || to_server_stalled_until > world_.now() ||
                        to_node_stalled_until > world_.now();
    if (parted || !world_.server_is_up()) return reconnect();
    back();
  });
}

void MusterNode::back() {
  const int life_before = world_.life_of(connection);
  world_.connect(*this);
  connected_ = true;
  if (world_.life() != life_before) round_ = -1;  // The server is new and counts from round 0.
  keep_alive();
  if (phase_ == Phase::Joining) return join();
  if (phase_ == Phase::Running) stop_and_join();
}

void MusterNode::stop_and_join() {
  phase_ = Phase::Stopping;
  world_.at(std::chrono::microseconds(world_.prng().below(world_.options().stop_us)), [this] {
    if (alive_ && phase_ == Phase::Stopping) join();
  });
}

void MusterNode::receive(const RendezvousAction& message) {
  std::visit([this](const auto& m) { on(m); }, message);
}

void MusterNode::on(const PrepareStore& message) {
  const auto round = message.round;
  world_.at(std::chrono::microseconds(world_.prng().below(5'000)), [this, round] {
    if (alive_) world_.send(*this, StoreReady{connection, round, name_.addr, 29400});
  });
}

void MusterNode::on(const RoundComplete& message) {
  // A rank must never be from an old round.
  REQUIRE(message.round > round_);
  REQUIRE(phase_ == Phase::Joining);
  round_ = known_round_ = message.round;
  told_by_ = message.life;
  last_round_ = message;
  phase_ = Phase::Running;
  world_.learned(*this, message.round, message.group_rank.value, message.group_world_size);
  if (message.workers) CHECK(message.workers->world_size == 2 * message.group_world_size);
  if (message.store) CHECK(message.store->port == 29400);
  if (!world_.options().worker_failures || !world_.faults || !world_.prng().chance(10)) return;
  world_.at(std::chrono::milliseconds(world_.prng().below(20'000)), [this, round = round_] {
    if (round == round_) fail("rank 0 exited with 1");
  });
}

void MusterNode::on(const RestartRound& message) {
  last_restart_ = message;
  if (phase_ == Phase::Finished || phase_ == Phase::Ended) return;
  REQUIRE(message.round >= round_);
  told_by_ = message.life;
  known_round_ = message.round;  // The round is lower than before if the server is a new one.
  if (phase_ == Phase::Joining) return join();  // The server counted the node to that round.
  if (phase_ == Phase::Running) stop_and_join();
}

void MusterNode::on(const RunClosed&) {
  if (phase_ == Phase::Joining) phase_ = Phase::Refused;
}

void MusterNode::on(const RunEnded& message) {
  end_ = message;
  phase_ = Phase::Ended;
}

void MusterNode::on(const JoinRefused& message) {
  refusal_ = message;
  phase_ = Phase::Refused;
}

void MusterNode::on(const NotAMember&) {
  if (phase_ == Phase::Joining) return join();
  if (phase_ == Phase::Running) stop_and_join();
  // The server took the node for lost before its finish arrived. The node has finished all the
  // same.
  if (phase_ == Phase::Finished) phase_ = Phase::Ended;
}

void MusterNode::fail(const std::string& what) {
  if (!alive_ || phase_ != Phase::Running) return;
  if (!connected_) return stop_and_join();  // The failure cannot be sent.
  world_.send(*this, WorkersFailed{connection, round_, what});
}

void MusterNode::finish(bool succeeded) {
  if (!alive_ || phase_ != Phase::Running) return;
  phase_ = connected_ ? Phase::Finished : Phase::Ended;
  if (connected_) world_.send(*this, NodeFinished{connection, round_, succeeded, "done"});
}

void MusterNode::leave() {
  if (connected_) world_.send(*this, NodeLeft{connection});
  alive_ = false;
  world_.at(1s, [this, gone = connection] { world_.disconnect(gone); });
}

std::string MusterNode::describe() const {
  static constexpr const char* kNames[]{"joining",  "running", "stopping",
                                        "finished", "ended",   "refused"};
  return to_string(name_) + " muster " + kNames[static_cast<int>(phase_)] + " round " +
         std::to_string(round_) + (alive_ ? "" : " dead") + (connected_ ? "" : " cut off") +
         (refusal_ ? " " + refusal_->text : std::string());
}

// --- torchrun ------------------------------------------------------------------------------------

TorchNode::TorchNode(World& world, const NodeName& name)
    : Node(world, name),
      model_(name, world.options().torch),
      seen_(std::make_shared<const RendezvousState>()) {}

void TorchNode::start() {
  ++incarnation_;
  const bool jitter = model_.state.round == 0;
  phase_ = Phase::Joining;
  world_.at(jitter ? Duration(std::chrono::microseconds(world_.prng().below(300'000))) : 0ns,
            [this] {
              if (alive_) begin(Operation::Exit, model_.settings().join_timeout);
            });
}

void TorchNode::begin(Operation operation, Duration limit) {
  operation_ = operation;
  operation_ends_ = world_.now() + limit;
  sync();
}

void TorchNode::sync() {
  if (dirty_) {
    ++tries_;
    in_flight_ = true;
    return world_.compare_set(*this, seen_, std::make_shared<const RendezvousState>(model_.state));
  }
  if (last_sync_ && world_.now() - *last_sync_ < 1s) return decide();
  in_flight_ = true;
  world_.get(*this);
}

void TorchNode::reply(State state) {
  in_flight_ = false;
  dirty_ = false;
  last_sync_ = world_.now();
  seen_ = state;
  model_.state = *state;
  model_.sanitize(world_.wall(*this));
  if (watching_) {
    watching_ = false;
    if (phase_ == Phase::Running && !model_.state.wait_list.empty()) restart_wanted_ = true;
    return;
  }
  decide();
}

void TorchNode::decide() {
  if (!operation_ || !alive_) return;
  const WallTime wall = world_.wall(*this);
  const Action action = model_.decide(*operation_, world_.now(), operation_ends_, wall);
  switch (action) {
    case Action::Finish:
      return finished();
    case Action::Closed:
    case Action::TimedOut:
      if (*operation_ == Operation::KeepAlive)
        keep_alive_later();
      else
        phase_ = Phase::Failed;
      operation_.reset();
      return;
    case Action::Graceful:
      phase_ = Phase::Ended;
      operation_.reset();
      return;
    case Action::Sync:
      return world_.at(1s, [this] {
        if (alive_ && operation_) sync();
      });
    default:
      break;
  }
  model_.apply(action, wall);
  if (action == Action::RemoveFromRedundancyList)
    operation_ends_ = world_.now() + model_.settings().join_timeout;
  dirty_ = true;
  sync();
}

void TorchNode::finished() {
  const Operation done = *operation_;
  operation_.reset();
  if (done == Operation::Exit) {
    // The join has the same deadline as the exit before it.
    operation_ = Operation::Join;
    return sync();
  }
  if (done == Operation::Close) {
    phase_ = Phase::Ended;
    return die(true);
  }
  if (done == Operation::KeepAlive) return keep_alive_later();
  phase_ = Phase::Running;
  rank_ = static_cast<int>(*model_.state.participants.find(name_));
  world_size_ = static_cast<int>(model_.state.participants.size());
  world_.learned_late(*this, model_.state.round, rank_, world_size_);
  keep_alive_later();
  ++incarnation_;
  run_timers();
}

/// As in torchrun, the timer starts when a keep-alive has ended. Otherwise each second one would
/// come too early.
void TorchNode::keep_alive_later() {
  next_keep_alive_ = world_.now() + model_.settings().keep_alive_interval;
}

/// Four times a second (in torchrun ten times): checks workers, waiting nodes and keep-alives.
void TorchNode::run_timers() {
  if (!alive_ || phase_ != Phase::Running) return;
  if (!in_flight_ && !operation_) {
    if (close_wanted_) {
      phase_ = Phase::Closing;
      return begin(Operation::Close, 30s);
    }
    if (restart_wanted_) return restart();
    if (world_.now() >= next_keep_alive_) {
      begin(Operation::KeepAlive, 5s);
    } else if (!last_sync_ || world_.now() - *last_sync_ >= 1s) {
      watching_ = in_flight_ = true;
      world_.get(*this);
    }
  }
  world_.at(250ms, [this, mine = incarnation_] {
    if (mine == incarnation_) run_timers();
  });
}

void TorchNode::restart() {
  restart_wanted_ = false;
  phase_ = Phase::Stopping;
  world_.at(std::chrono::microseconds(world_.prng().below(world_.options().stop_us)), [this] {
    if (alive_) start();
  });
}

void TorchNode::fail() {
  if (!alive_ || phase_ != Phase::Running) return;
  if (in_flight_ || operation_)
    restart_wanted_ = true;
  else
    restart();
}

void TorchNode::finish() {
  if (alive_ && phase_ == Phase::Running) close_wanted_ = true;
}

bool TorchNode::settled() const {
  if (phase_ == Phase::Joining) return model_.state.redundancy_list.contains(name_);
  return phase_ != Phase::Stopping && phase_ != Phase::Closing;
}

std::string TorchNode::describe() const {
  static constexpr const char* kNames[]{"joining", "running", "stopping",
                                        "closing", "ended",   "failed"};
  return to_string(name_) + " torch " + kNames[static_cast<int>(phase_)] + " round " +
         std::to_string(model_.state.round) + (alive_ ? "" : " dead") +
         (in_flight_ ? " waits for a reply" : "") + (operation_ ? " in an operation" : "") +
         (world_.connected(*this) ? "" : " disconnected") + " sees " +
         std::to_string(model_.state.participants.size()) + " participants, " +
         std::to_string(model_.state.wait_list.size()) + " waiting, clock off by " +
         std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(skew).count()) +
         " ms";
}

}  // namespace muster::testing

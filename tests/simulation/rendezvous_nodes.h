// The two kinds of nodes of the simulation.
#pragma once

#include "tests/simulation/rendezvous_world.h"

namespace muster::testing {

/// The part of a muster agent that deals with the rendezvous.
class MusterNode : public Node {
 public:
  struct Role {
    bool spare = false;
    std::optional<int> preferred;
  };
  enum class Phase { Joining, Running, Stopping, Finished, Ended, Refused };

  MusterNode(World& world, NodeName name, Role role)
      : Node(world, std::move(name)),
        role_(role),
        instance_("instance " + std::to_string(world.nodes().size())) {}

  void start() override;
  void on_lost() override;
  void receive(const RendezvousAction& message) override;
  void reply(State) override {}
  bool settled() const override { return phase_ != Phase::Stopping && phase_ != Phase::Joining; }
  std::optional<std::int64_t> round() const override {
    return phase_ == Phase::Running ? std::optional(round_) : std::nullopt;
  }
  std::string describe() const override;

  void fail(const std::string& what);  // One of its workers fails.
  void finish(bool succeeded);
  void leave();
  void notify(Duration left);  // The node will go.
  bool is_doomed() const { return goes_at_.has_value(); }

  Phase phase() const { return phase_; }
  const std::optional<RoundComplete>& last_round() const { return last_round_; }
  const std::optional<RunEnded>& end() const { return end_; }
  const std::optional<JoinRefused>& refusal() const { return refusal_; }
  const std::optional<RestartRound>& last_restart() const { return last_restart_; }

 private:
  void join();
  void stop_and_join();
  void reconnect();
  void back();
  void keep_alive();
  void on(const PrepareStore& message);
  void on(const RoundComplete& message);
  void on(const RestartRound& message);
  void on(const RunClosed&);
  void on(const RunEnded& message);
  void on(const JoinRefused& message);
  void on(const NotAMember& message);
  void on(const ClockSkewSeen&) {}
  void on(const ReleaseFromExitBarrier&) {}
  void on(const NodeGone&) {}
  void on(const NodeHeldBack&) {}
  void on(const Resumed&) {}
  void on(const Rejoin&) {}
  void on(const RoundRecovered&) {}
  void on(const FailureCounted&) {}
  void on(const Notice&) {}
  void on(const CommandsDiffer&) {}
  void on(const PreemptionNotice& message);
  void on(const NoticeGiven&) {}
  void on(const NodeAnsweredNotice&) {}
  void on(const NoticeOver&) {}
  void send_notice();

  Role role_;
  std::string instance_;
  bool connected_ = true;
  Phase phase_ = Phase::Joining;
  std::int64_t round_ = -1;
  std::int64_t known_round_ = -1;
  std::int64_t told_by_ = 0;
  std::optional<RoundComplete> last_round_;
  std::optional<RunEnded> end_;
  std::optional<JoinRefused> refusal_;
  std::optional<RestartRound> last_restart_;
  std::optional<Instant> goes_at_;
};

/// torchrun's agent: next_rendezvous, keep-alives, and a check for waiting nodes once a second.
class TorchNode : public Node {
 public:
  enum class Phase { Joining, Running, Stopping, Closing, Ended, Failed };

  TorchNode(World& world, const NodeName& name);

  void start() override;
  void receive(const RendezvousAction&) override {}
  void reply(State state) override;
  bool settled() const override;
  std::optional<std::int64_t> round() const override {
    return phase_ == Phase::Running ? std::optional(model_.state.round) : std::nullopt;
  }
  std::string describe() const override;

  void fail();    // One of its workers fails: the node restarts.
  void finish();  // Closes the rendezvous and ends.

  Phase phase() const { return phase_; }
  std::size_t tries() const { return tries_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

 private:
  using Operation = TorchModel::Operation;
  using Action = TorchModel::Action;

  void restart();
  void begin(Operation operation, Duration limit);
  void sync();
  void decide();
  void finished();
  void keep_alive_later();
  void run_timers();

  TorchModel model_;
  State seen_;  // The fencing token: the state that was last received.
  Phase phase_ = Phase::Joining;
  std::optional<Operation> operation_;
  Instant operation_ends_{};
  std::optional<Instant> last_sync_;
  bool dirty_ = false;
  bool in_flight_ = false;
  bool watching_ = false;  // The request in flight is a check for waiting nodes.
  bool restart_wanted_ = false;
  bool close_wanted_ = false;
  Instant next_keep_alive_{};
  std::uint64_t incarnation_ = 0;  // Timers of an older incarnation are ignored.
  std::size_t tries_ = 0;
  int rank_ = -1;
  int world_size_ = 0;
};

}  // namespace muster::testing

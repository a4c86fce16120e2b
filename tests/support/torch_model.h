// A model of torchrun's client of the rendezvous state, for tests: which operation follows from a
// state (torch 2.13, elastic/rendezvous/dynamic_rendezvous.py), and how the operation changes it.
#pragma once

#include <memory>
#include <optional>

#include "base/time.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster::testing {

struct TorchSettings {
  int min_nodes = 1;
  int max_nodes = 1;
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call = std::chrono::seconds(30);
  Duration keep_alive_interval = std::chrono::seconds(5);
  Duration dead_after = std::chrono::seconds(15);
};

/// The handler of one node: its copy of the state, and the rules. The caller carries the requests.
class TorchModel {
 public:
  enum class Action {
    KeepAlive,
    AddToParticipants,
    AddToWaitList,
    AddToRedundancyList,
    RemoveFromParticipants,
    RemoveFromWaitList,
    RemoveFromRedundancyList,
    MarkComplete,
    MarkClosed,
    Sync,
    Closed,    // An error: the run is over.
    Graceful,  // The run is over for a spare: exit code 0.
    TimedOut,
    Finish,
  };
  enum class Operation { Exit, Join, KeepAlive, Close };

  TorchModel(NodeName name, TorchSettings settings) : name_(std::move(name)), settings_(settings) {}

  /// Runs after every sync: removes nodes whose heartbeat is too old by this node's clock.
  void sanitize(WallTime wall);
  Action decide(Operation operation, Instant now, Instant deadline, WallTime wall) const;
  /// Changes the local copy.
  void apply(Action action, WallTime wall);

  const NodeName& name() const { return name_; }
  const TorchSettings& settings() const { return settings_; }
  RendezvousState state;

 private:
  Action decide_join(Instant now, Instant deadline, WallTime wall) const;
  bool keep_alive_due(WallTime wall) const;
  void participant_left();
  int taken() const { return static_cast<int>(state.participants.size()); }

  NodeName name_;
  TorchSettings settings_;
};

}  // namespace muster::testing

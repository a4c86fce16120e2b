// The messages of muster nodes that are members: signs of life, failures, ends.
#pragma once

#include "rendezvous/rounds/run_core.h"

namespace muster {

class NodeMessages {
 public:
  explicit NodeMessages(RunCore& run) : run_(run) {}

  void on(const KeptAlive& event);
  void on(const NodeLeft& event);
  void on(const WorkersFailed& event);
  void on(const RestartRequested& event);
  void on(const StoreReady& event);
  void on(const NodeFinished& event);

 private:
  RunCore& run_;
};

}  // namespace muster

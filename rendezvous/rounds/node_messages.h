// The messages of muster nodes that are members: signs of life, failures, ends.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class NodeMessages {
 public:
  explicit NodeMessages(RunCore& run) : run_(run) {}

  void on(const KeptAlive& event);
  void on(const NodeLeft& event);
  void on(const WorkersFailed& event);
  void on(const NodeProgressed& event);
  void on(const RestartRequested& event);
  void on(const StoreReady& event);
  void on(const NodeFinished& event);

  /// Workers of the round have made progress, or did so while it ran.
  void note_progress(std::int64_t round, std::optional<std::int64_t> step);

 private:
  RunCore& run_;
};

}  // namespace muster

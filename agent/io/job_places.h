// What a job has in the file system for as long as it lasts: its directory, the timers' pipe, and
// the socket of the worker channel.
//
// Chosen before muster parts into front, shim and agent, and made by the agent: so whoever is left,
// if others are killed, knows what to remove.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/io/file_timer.h"
#include "agent/io/run_dir.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

class JobPlaces {
 public:
  /// Makes nothing yet. `environment`, which workers inherit, tells them where the pipe will be.
  static JobPlaces choose(const AgentOptions& options, std::vector<std::string>& environment);

  /// Makes them, and logs if not in the place that was the first choice. Returns why it cannot;
  /// empty: it could. Their storage may make it wait.
  std::string make();

  const RunDir& run_dir() const { return run_dir_; }
  /// Null: no file timers.
  const TimerFifo* fifo() const { return fifo_ ? &*fifo_ : nullptr; }

  /// The socket at channel_path(), for its only owner. None is open where there can be none:
  /// without a directory, or if its path is too long for a socket.
  OwnedFd take_channel() { return std::move(channel_); }
  const std::string& channel_path() const { return channel_path_; }

  /// By whom made them, at the end.
  void tidy(bool success) const;
  /// The same by another process, when that one is gone and could perhaps not.
  void tidy_for_the_dead() const;
  /// What earlier jobs have left in the same folders whose processes were all killed.
  void tidy_after_dead_owners() const;

 private:
  void open_channel();

  RunDir run_dir_;
  std::optional<TimerFifo> fifo_;
  std::string channel_path_;  // Empty: there is none.
  OwnedFd channel_;
};

}  // namespace muster

// The files of one job: the run directory, the timers' pipe, and the socket of the worker channel.
//
// The paths are chosen before muster splits into front, shim and agent, and the agent creates the
// files: so each of these processes knows what to remove if the others are killed.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/io/file_timer.h"
#include "agent/io/run_dir.h"
#include "agent/io/temporary_folder.h"
#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

class RunFiles {
 public:
  /// Creates nothing yet. `environment` is what the workers inherit.
  static RunFiles choose(const AgentOptions& options, const std::vector<std::string>& environment);

  /// Creates the files. Logs a warning if one is not in the first place that was chosen, or if a
  /// job runs without one that it can do without. Returns a sentence if it fails, else an empty
  /// text. May wait for storage.
  std::string create();

  /// Creates what was removed since: the run directory, the socket, the pipe, perhaps in other
  /// places, and says so. Returns as create(), also if another folder is in the place of the run
  /// directory.
  std::string restore();
  /// Whether restore() has created files again since the last call. The caller then needs
  /// take_channel(), the reader of the pipe fifo(), and the shim copies_of_locks().
  bool take_restored() { return std::exchange(restored_, false); }

  const RunDir& run_dir() const { return run_dir_; }
  /// Null without file timers.
  const TimerFifo* fifo() const { return fifo_ ? &*fifo_ : nullptr; }

  /// Moves the listening socket at channel_path() to the caller. It is not open if there can be no
  /// channel.
  OwnedFd take_channel() { return std::move(channel_); }
  const std::string& channel_path() const { return channel_path_; }

  /// Copies of the locks' descriptors, for the shim: it must own the folders if the agent is
  /// killed, until the workers have ended. Empty if there is no lock, or no descriptor is left.
  std::vector<OwnedFd> copies_of_locks() const;

  /// Removes the files. Called at the end by the process that created them.
  void remove(bool success) const;
  /// The same for another process, after the agent is gone, perhaps without having removed them.
  void remove_for_lost_agent() const;
  /// Removes what earlier jobs, whose processes were all killed, left in the same folders.
  void remove_orphans() const;

 private:
  std::string create_run_dir();
  std::string create_fifo();
  void open_channel();
  boost::system::error_code listen_in(const std::string& folder);

  RunDir run_dir_;
  std::optional<TimerFifo> fifo_;
  TemporaryFolder channel_folder_;  // Used if the socket cannot be in the run directory.
  std::string channel_path_;        // Empty without a channel.
  OwnedFd channel_;
  bool restored_ = false;
};

}  // namespace muster

// The front: the process that the user started. It represents the job to the user: it passes
// signals on to the shim, its child, and ends with the outcome that the shim sends.
//
// Front and shim are both subreapers, and the shim descends from the front, so either may be killed
// at any instant. Each descendant of the workers still has one of them among its ancestors, also
// after a change of its session or environment. The one that lives kills these descendants.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "agent/posix/shim.h"

namespace muster {

/// From the front to the shim. Each message is one packet, over a pair of make_shim_pair().
struct FrontMessage {
  enum class Kind : std::uint32_t {
    Signal,    // The front received signal `number`.
    Stop,      // The user stops the job at the terminal (ctrl-Z): stop the workers.
    Continue,  // The job goes on: continue the workers.
    Resize,    // The console has a new size: the workers' terminals get it.
  };
  Kind kind = Kind::Signal;
  std::int32_t number = 0;
  std::int32_t from_kernel = 0;  // 1: the kernel sent the signal, as for a key of the terminal.
};

/// From the shim to the front: the shim's last message.
struct Outcome {
  std::int32_t exit_code = 0;
  std::int32_t exit_signal = 0;    // If not 0, the front kills itself with this signal.
  std::int32_t files_removed = 0;  // 1: the agent has ended as it should, and removed its files.
};

struct FrontSetup {
  pid_t shim = -1;
  int socket = -1;       // To the shim.
  sigset_t watched{};    // The signals that the front reads. Blocked; SIGCHLD is one of them.
  bool stops = false;    // SIGTSTP (ctrl-Z) stops the job. False: it is a signal like any other.
  bool resizes = false;  // SIGWINCH is watched, and tells the console's new size.
  /// A key of the terminal (ctrl-C, ctrl-backslash) does not end the job: it was started under
  /// nohup, in the background of a script.
  bool ignores_keys = false;
  std::string cgroup;      // The name of the workers' cgroup.
  std::set<pid_t> spared;  // Children that are older than muster: `helper & exec muster`.
  /// Writes the reports that were asked for. Has a limit.
  std::function<void(const LostProcess&)> report_lost_process;
  /// Removes the files that a dead agent has left. Has a limit.
  std::function<void()> remove_files;
};

/// Runs until the shim has ended. Returns muster's exit status, or ends by a signal. If the shim
/// ends without an Outcome, the front kills all its descendants.
int run_front(const FrontSetup& setup);

}  // namespace muster

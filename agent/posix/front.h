// The front: the process that the user started. It stands for the job: passes signals on to the
// shim, its child, and ends as the shim says.
//
// Front and shim are both subreapers, one within the other, so either may be killed at any instant:
// every descendant of the workers, whatever it made of its session and environment, still has one
// of them among its ancestors, and that one kills it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>

namespace muster {

/// Front to shim. One packet each, over a pair as make_shim_pair() gives it.
struct FrontMessage {
  enum class Kind : std::uint32_t {
    Signal,    // The front got signal `number`.
    Stop,      // The job is stopped from the terminal (ctrl-Z): stop the workers.
    Continue,  // It goes on.
  };
  Kind kind = Kind::Signal;
  std::int32_t number = 0;
  std::int32_t from_kernel = 0;  // 1: no process sent it, such as a key of the terminal.
};

/// Shim to front, its last word.
struct Outcome {
  std::int32_t exit_code = 0;
  std::int32_t exit_signal = 0;  // If not 0: muster dies of this signal.
  std::int32_t is_tidy = 0;      // 1: the agent has ended as it should, and removed its files.
};

struct FrontSetup {
  pid_t shim = -1;
  int socket = -1;         // To the shim.
  sigset_t watched{};      // Blocked; SIGCHLD is one of them.
  std::set<pid_t> spared;  // Children from before we were muster: `helper & exec muster`.
  /// Removes what a dead agent has left; called in a child process, as it may hang.
  std::function<void()> tidy;
};

/// Runs until the shim is gone; returns the exit status of the whole, or dies of a signal. When the
/// shim ends without a last word, all that descends from us is killed.
int run_front(const FrontSetup& setup);

}  // namespace muster

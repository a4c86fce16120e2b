// Waits for SIGCHLD, which must be blocked, through a descriptor or a call.
#pragma once

#include <signal.h>

#include <chrono>

namespace muster {

/// The set of SIGCHLD alone.
sigset_t child_only();
/// A descriptor that is readable when a child has ended; -1 with errno.
int open_child_signals();
/// Reads and drops all signals that wait in `signal_fd`.
void drain(int signal_fd);
/// Waits until a child ends, at most for `limit`.
void wait_for_child(std::chrono::milliseconds limit);

}  // namespace muster

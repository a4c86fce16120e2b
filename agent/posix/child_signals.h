// SIGCHLD, blocked, as a descriptor and as a wait.
#pragma once

#include <signal.h>

#include <chrono>

namespace muster {

/// SIGCHLD and no other.
sigset_t child_only();
/// Readable when a child has ended; -1 with errno.
int open_child_signals();
/// Reads what is there, and forgets it.
void drain(int signal_fd);
/// Until a child ends, or the time is over.
void wait_for_child(std::chrono::milliseconds limit);

}  // namespace muster
